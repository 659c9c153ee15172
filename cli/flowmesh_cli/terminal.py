"""Where a command writes: one JSON document, or text for people.

Answers go to standard output, everything said on the way to standard error, so that ``--json`` can
always be piped.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from flowmesh_cli.errors import DeclinedError

_PIPE_COLUMNS = 240
"""Nobody folds what a program or a file reads."""


class Terminal:
    """The two streams, and whether answers are JSON."""

    def __init__(self, *, as_json: bool) -> None:
        """Takes whether the answer is read by a program."""
        self.as_json = as_json
        self.out = Console(highlight=False, soft_wrap=True, width=_width(sys.stdout))
        self.err = Console(stderr=True, highlight=False, soft_wrap=True, width=_width(sys.stderr))

    @property
    def is_live(self) -> bool:
        """Whether somebody watches: progress may be redrawn."""
        return self.err.is_terminal and not self.as_json

    @property
    def can_ask(self) -> bool:
        """Whether a person can read a question and type an answer."""
        return sys.stdin.isatty() and self.err.is_terminal

    def confirm(self, question: str, *, declined: str) -> None:
        """Returns after a yes.

        Raises:
            DeclinedError: after a no, a Ctrl-C, and where standard input has ended.
        """
        try:
            agreed = typer.confirm(question, err=True)
        except typer.Abort:
            typer.echo(err=True)
            agreed = False
        if not agreed:
            raise DeclinedError(declined, remedy="--yes does it without a question")

    def answer(self, document: Any) -> None:
        """Writes the answer as JSON; call it only where ``as_json``."""
        sys.stdout.write(json_text(document) + "\n")
        sys.stdout.flush()

    def line(self, document: Any) -> None:
        """Writes one line of newline-delimited JSON."""
        sys.stdout.write(msgspec.json.encode(plain(document)).decode() + "\n")
        sys.stdout.flush()

    def text(self, text: str = "") -> None:
        """Writes a line of the answer for people, as it is."""
        self.out.print(text, markup=False)

    def note(self, text: str) -> None:
        """Says something on the way."""
        typer.echo(text, err=True)

    def table(
        self,
        headings: list[str],
        rows: list[list[str]],
        *,
        right: str | Sequence[str] = "",
        whole: str = "",
    ) -> None:
        """Writes a table.

        Args:
            headings: one a column.
            rows: the cells.
            right: the headings of numbers, with spaces between, or one by one.
            whole: the headings of names that are copied: never folded, the others give way.
        """
        self.out.print(make_table(headings, rows, right=right, whole=whole))


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS


def make_table(
    headings: list[str], rows: list[list[str]], *, right: str | Sequence[str] = "", whole: str = ""
) -> Table:
    """A table without lines; columns fold rather than lose what they say."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    numbers = right.split() if isinstance(right, str) else right
    names = whole.split()
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in numbers else "left",
            overflow="fold",
            no_wrap=heading in names,
        )
    for row in rows:
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    return table


def plain(document: Any) -> Any:
    """JSON values of structs and lists of them, with every field: scripts need no defaults."""
    if isinstance(document, msgspec.Struct):
        fields = document.__struct_fields__
        return {name: plain(getattr(document, name)) for name in fields}
    if isinstance(document, dict):
        return {str(key): plain(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain(value) for value in document]
    return document


def json_text(document: Any) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2).decode()
