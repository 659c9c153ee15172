"""Rows of the tables of side channels: the measurement, its bound, and its control.

Called by ``side_channels.py``.
"""

from dataclasses import dataclass

from auc import Separation
from results import Table

CONTROL = 0.9
COLUMNS = ("channel", "samples", "AUC (judge)", "95% interval", "bound", "control", "holds")


@dataclass(frozen=True, slots=True)
class Row:
    """A side channel, its measurement and that of its control."""

    name: str
    found: Separation
    bound: float
    control: Separation

    @property
    def seen(self) -> bool:
        """Whether the control shows that a difference would have been seen."""
        return self.control.auc >= CONTROL

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, and the control seen."""
        return self.seen and bool(self.found.upper <= self.bound)

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        found, control = self.found, self.control
        verdict = "yes" if self.holds else "**no**" if self.seen else "**unknown**"
        return [
            self.name,
            f"{found.samples:,} + {found.samples:,}",
            f"{found.auc:.3f} ({found.judge})",
            f"{found.lower:.3f} to {found.upper:.3f}",
            f"{self.bound:.2f}",
            f"{control.auc:.3f} ({control.judge}, {control.samples:,} + {control.samples:,})",
            verdict,
        ]


def table(title: str, rows: list[Row]) -> Table:
    """Returns the table of a part, whose notes name what is missed."""
    missed = [row.name for row in rows if not row.holds]
    notes = [f"**not held by: {', '.join(missed)}**"] if missed else []
    if not all(row.seen for row in rows):
        notes.append(f"Unknown: the control is below {CONTROL}, so the measurement saw too little.")
    return Table(title, COLUMNS, [row.cells for row in rows], notes)
