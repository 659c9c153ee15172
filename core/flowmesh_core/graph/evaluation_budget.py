"""How much work the conditions of a run may cause, counted in steps of the evaluator.

Conditions are what tenants wrote, and they are evaluated where every run is served. The counts are
the same on every machine, so a run that is recovered stops at the same place.
"""

from dataclasses import dataclass

STEPS_MAX = 5_000
"""Steps of one evaluation: nodes of the syntax tree that are visited, and what values weigh."""
RUN_STEPS = 200_000
RUN_STEPS_PER_CONDITION = 50
MADE_MAX = 10_000
"""Characters, or items, of a string or list that ``+`` makes in a condition."""
NESTING_MAX = 3
"""How deep macros (``all``, ``exists``, ``map`` and so on) may stand inside one another."""


@dataclass(slots=True)
class EvaluationBudget:
    """What the conditions of one run may still take.

    Attributes:
        total: steps of all its evaluations together.
        spent: steps so far.
    """

    total: int
    spent: int = 0

    @classmethod
    def of(cls, conditions: int) -> "EvaluationBudget":
        """The budget of a run with so many conditions."""
        return cls(RUN_STEPS + RUN_STEPS_PER_CONDITION * conditions)

    @property
    def left(self) -> int:
        """Steps that are left."""
        return max(0, self.total - self.spent)
