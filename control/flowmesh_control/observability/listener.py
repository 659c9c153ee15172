"""Port for observers of runs: the run log and the tracing implement it."""

from typing import Protocol

from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.machine.commands import AttemptSettled


class RunListener(Protocol):
    """Receives every ledger line and every end of an attempt; must not block."""

    def appended(self, uid: str, line: Line) -> None:
        """Receives a new line of a run's ledger; the run is still in the state."""
        ...

    def settled(self, attempt: AttemptSettled) -> None:
        """Receives the end of an attempt, whether a run or the fabric pays for it."""
        ...
