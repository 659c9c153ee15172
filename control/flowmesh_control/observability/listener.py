"""Takes what the machine says of runs and attempts, for everybody who tells of it."""

from typing import Protocol

from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.machine.commands import AttemptSettled


class RunListener(Protocol):
    """Hears of every line of a ledger, and of every attempt's end; must not block."""

    def appended(self, uid: str, line: Line) -> None:
        """A line of a run's ledger; the run is still in the state."""
        ...

    def settled(self, attempt: AttemptSettled) -> None:
        """An attempt has ended, whoever pays for it."""
        ...
