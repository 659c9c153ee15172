"""Renders rows of data sets: a table with short cells."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting

CELL_CHARS = 60
"""A longer value is cut; ``--json`` and downloads have all of it."""
COLUMNS_MAX = 8
"""Columns that are shown where the user has not chosen them."""


def show_rows(
    terminal: Terminal, rows: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = ()
) -> None:
    """Writes a table of rows, in the order of their columns.

    Args:
        terminal: where to.
        rows: that are shown, all of them.
        columns: those to show; the first ones otherwise.
    """
    if not rows:
        return
    known = list(dict.fromkeys(name for row in rows for name in row))
    shown = list(columns) or known[:COLUMNS_MAX]
    numbers = [n for n in shown if all(_is_number(row.get(n)) for row in rows)]
    cells = [[cell(row.get(name)) for name in shown] for row in rows]
    last_first = [] if columns else shown[:0:-1]
    shown = terminal.table(shown, cells, right=numbers, cut=shown, optional=last_first)
    if not columns and len(known) > len(shown):
        left = ", ".join(name for name in known if name not in shown)
        terminal.text(f"  and {formatting.count(len(known) - len(shown), 'column')}: {left}")


def cell(value: Any) -> str:
    """Returns a value in one short line."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= CELL_CHARS else f"{line[: CELL_CHARS - 1]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
