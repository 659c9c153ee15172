"""Tables for notebooks: plain HTML, all texts escaped."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

CELL_CHARACTERS = 200
"""Longer values are cut in a table."""


def table_html(rows: Sequence[Mapping[str, Any]], *, title: str) -> str:
    """Returns a table with a column for each name that a row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(name))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{escape(title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    cut = text[:CELL_CHARACTERS] + ("…" if len(text) > CELL_CHARACTERS else "")
    return escape(cut)
