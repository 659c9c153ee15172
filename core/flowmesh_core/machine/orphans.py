"""Attempts and ends that workers report of actions that are not known yet, as after a restart."""

from collections import Counter
from collections.abc import ItemsView, ValuesView

import msgspec

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import AttemptEnd

ENDS_MAX = 4096
"""Ends of one worker that wait for their actions; what is beyond runs again."""


class OrphanedAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt that a worker runs.

    Attributes:
        generation: of the result that it would publish.
    """

    worker: str
    attempt_id: str
    generation: int


class OrphanedEnd(msgspec.Struct, frozen=True, gc=False):
    """The successful end of an attempt, which its worker retains.

    Attributes:
        generation: of the result that it would publish.
    """

    worker: str
    end: AttemptEnd
    generation: int


class OrphanedEnds:
    """Orphaned ends by action, of each worker at most ``ENDS_MAX``."""

    __slots__ = ("_by_action", "_counts")

    def __init__(self) -> None:
        self._by_action: dict[ActionKey, OrphanedEnd] = {}
        self._counts = Counter[str]()

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._by_action)

    def add(self, key: ActionKey, orphan: OrphanedEnd) -> bool:
        """Adds an end in place of an earlier one of the action; False where there are too many."""
        if self._counts[orphan.worker] >= ENDS_MAX:
            return False
        if key in self._by_action:
            self.pop(key)
        self._by_action[key] = orphan
        self._counts[orphan.worker] += 1
        return True

    def pop(self, key: ActionKey) -> OrphanedEnd:
        """Removes and returns the end of an action."""
        orphan = self._by_action.pop(key)
        self._counts[orphan.worker] -= 1
        if not self._counts[orphan.worker]:
            del self._counts[orphan.worker]
        return orphan

    def items(self) -> ItemsView[ActionKey, OrphanedEnd]:
        """Returns actions and ends."""
        return self._by_action.items()

    def values(self) -> ValuesView[OrphanedEnd]:
        """Returns the ends."""
        return self._by_action.values()
