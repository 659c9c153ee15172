"""How much work the conditions of a run may cause, counted in steps of the evaluator.

Tenants write conditions, and they are evaluated in the process that serves every run. The counts
are the same on every machine, so a run that is recovered stops at the same place.
"""

from dataclasses import dataclass

STEPS_MAX = 5_000
"""Steps of one evaluation: visited nodes of the syntax tree, and the weight of values."""
RUN_STEPS = 200_000
RUN_STEPS_PER_CONDITION = 50
MADE_MAX = 10_000
"""Characters, or items, of a string or list that ``+`` makes in a condition."""
NESTING_MAX = 3
"""How deep macros (``all``, ``exists``, ``map`` and so on) may be nested."""


@dataclass(slots=True)
class EvaluationBudget:
    """The remaining steps of one run's conditions.

    Attributes:
        total: steps of all its evaluations together.
        spent: steps so far.
    """

    total: int
    spent: int = 0

    @classmethod
    def of(cls, conditions: int) -> "EvaluationBudget":
        """Returns the budget of a run with this many conditions."""
        return cls(RUN_STEPS + RUN_STEPS_PER_CONDITION * conditions)

    @property
    def remaining(self) -> int:
        """The remaining steps."""
        return max(0, self.total - self.spent)
