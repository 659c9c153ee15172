"""How much work the conditions of a run may cause, counted in steps of the evaluator.

Tenants write conditions. The counts are the same on every machine and in every process, so a run
that is recovered stops at the same place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STEPS_MAX = 5_000
"""Steps of one evaluation: visited nodes of the syntax tree, and the weight of values."""
RUN_STEPS = 200_000
RUN_STEPS_PER_CONDITION = 50
MADE_MAX = 10_000
"""Characters, or items, of a string or list that ``+`` makes in a condition."""
NESTING_MAX = 3
"""How deep macros (``all``, ``exists``, ``map`` and so on) may be nested."""
VALUES_PER_STEP = 10
"""Values given to a condition that count one step."""
CHARS_PER_VALUE = 100
"""Characters of text that count as one value."""
SHOWN_CHARS = 200
"""Characters of a condition in an error."""
REMEDY = "compare values that a step has computed"


@dataclass(slots=True)
class EvaluationBudget:
    """The remaining steps of one run's conditions.

    Attributes:
        total: steps of all its evaluations together.
        spent: steps so far.
        reserved: steps that the evaluations under way may still take.
    """

    total: int
    spent: int = 0
    reserved: int = 0

    @classmethod
    def of(cls, conditions: int) -> "EvaluationBudget":
        """Returns the budget of a run with this many conditions."""
        return cls(RUN_STEPS + RUN_STEPS_PER_CONDITION * conditions)

    @property
    def remaining(self) -> int:
        """The remaining steps."""
        return max(0, self.total - self.spent)

    def reserve(self) -> int | None:
        """Reserves steps for an evaluation, and returns how many it may take.

        None where the result would depend on evaluations that are under way: wait for one of them.
        """
        free = self.remaining - self.reserved
        if self.reserved and free < STEPS_MAX:
            return None
        granted = min(STEPS_MAX, free)
        self.reserved += granted
        return granted

    def settle(self, granted: int, steps: int) -> None:
        """Ends an evaluation that had ``granted`` steps reserved and took ``steps``."""
        self.reserved -= granted
        self.spent += steps


def too_many_steps(text: str, *, remaining: int, total: int) -> str:
    """Returns the message for a condition that needs more steps than it may take.

    Args:
        text: the condition.
        remaining: steps that it could take.
        total: what the conditions of its run may take together.
    """
    if remaining < STEPS_MAX:
        return f"the run's conditions need more than {total:,} steps together"
    return f"the condition {shown(text)!r} needs more than {STEPS_MAX:,} steps"


def shown(text: str) -> str:
    """Returns a condition as errors show it: the beginning of a long one."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def outweighs(value: Any, steps: int) -> bool:
    """Whether giving this value to a condition alone takes more steps.

    The time is bounded by the steps, however large the value is.
    """
    left = (steps + 1) * VALUES_PER_STEP
    walks = [iter((value,))]
    while walks and left > 0:
        for item in walks[-1]:
            left -= 1 + (len(item) // CHARS_PER_VALUE if isinstance(item, str) else 0)
            if left <= 0:
                break
            inside = _inside(item)
            if inside is not None:
                walks.append(iter(inside))
                break
        else:
            walks.pop()
    return left <= 0


def _inside(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else None
