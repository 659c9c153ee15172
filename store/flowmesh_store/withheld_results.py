"""The results that look-ups do not find although they are stored, in memory.

An administrator withholds results that are no longer believed (``fmesh withhold``), or the control
plane does after a result did not repeat elsewhere. The records stay where they are. The action
cache asks :meth:`WithheldResults.hides` in its one check of what is usable; nothing else decides
it, and the answer needs no request to the store.
"""

from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import ActionResult

Place = tuple[str, str]
"""A scope and an action id."""
Version = tuple[int, float]
"""A record's generation and the time of its result: a later one of either is another result."""


class WithheldResults:
    """Hides withheld results; changed by the control plane only."""

    def __init__(self) -> None:
        self._versions: dict[Place, Version] = {}
        self._selections: list[ResultSelection] = []

    def hides(self, scope: str, result: ActionResult) -> bool:
        """Whether look-ups in a scope must not find this result."""
        version = self._versions.get((scope, result.action_id))
        if version is not None and (
            result.generation <= version[0] and result.created_s <= version[1]
        ):
            return True
        return any(one.selects(result) for one in self._selections)

    def add(self, scope: str, action_id: str, version: Version) -> None:
        """Hides a result: that of this generation and time, and those before it."""
        self._versions[scope, action_id] = version

    def remove(self, scope: str, action_id: str) -> None:
        """Ends the hiding of one result."""
        self._versions.pop((scope, action_id), None)

    def hide_all(self, selection: ResultSelection) -> None:
        """Hides all results of a selection at once, also while their records are searched for."""
        self._selections.append(selection)

    def clear_selections(self) -> None:
        """Ends the hiding of selections; single results stay hidden."""
        self._selections.clear()

    @property
    def count(self) -> int:
        """The number of results that are hidden one by one."""
        return len(self._versions)
