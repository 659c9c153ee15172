"""The output of a command: one JSON document, or text for people.

Results go to standard output, messages and progress to standard error, so that ``--json`` can
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
from flowmesh_cli.printable import printable

_PIPE_COLUMNS = 240
"""Width of output to a pipe or file, whose lines should not be folded."""


class Terminal:
    """The two streams, and whether results are JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console(highlight=False, soft_wrap=True, width=_width(sys.stdout))
        self.err = Console(stderr=True, highlight=False, soft_wrap=True, width=_width(sys.stderr))

    @property
    def is_live(self) -> bool:
        """Whether progress may be redrawn: standard error is a terminal, and output is text."""
        return self.err.is_terminal and not self.as_json

    @property
    def can_ask(self) -> bool:
        """Whether the user can be asked: standard input and error are terminals."""
        return sys.stdin.isatty() and self.err.is_terminal

    def confirm(self, question: str, *, declined: str) -> None:
        """Asks for confirmation; returns if the user agrees.

        Raises:
            DeclinedError: the user declined or pressed Ctrl-C, or standard input has ended.
        """
        try:
            agreed = typer.confirm(question, err=True)
        except typer.Abort:
            typer.echo(err=True)
            agreed = False
        if not agreed:
            raise DeclinedError(declined, remedy="--yes skips the confirmation")

    def answer(self, document: Any) -> None:
        """Writes the result as JSON; for use where ``as_json`` is set."""
        sys.stdout.write(json_text(document) + "\n")
        sys.stdout.flush()

    def line(self, document: Any) -> None:
        """Writes one line of newline-delimited JSON."""
        sys.stdout.write(msgspec.json.encode(plain(document)).decode() + "\n")
        sys.stdout.flush()

    def text(self, text: str = "") -> None:
        """Writes a line of the result as text, without markup."""
        self.piece(text + "\n")

    def piece(self, text: str) -> None:
        """Writes a part of a line, as :meth:`text`."""
        self.out.print(printable(text), end="", markup=False, emoji=False)

    def note(self, text: str) -> None:
        """Writes a message to standard error."""
        typer.echo(printable(text), err=True)

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
            headings: one per column.
            rows: the cells.
            right: headings of right-aligned columns, as a list or separated by spaces.
            whole: headings of columns that are never folded, such as uids to copy.
        """
        self.out.print(make_table(headings, rows, right=right, whole=whole))


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS


def make_table(
    headings: list[str], rows: list[list[str]], *, right: str | Sequence[str] = "", whole: str = ""
) -> Table:
    """Returns a table without lines; long cells are folded, not cut."""
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
        table.add_row(*(printable(cell).replace("[", "\\[") for cell in row))
    return table


def plain(document: Any) -> Any:
    """Converts structs to JSON values with every field, so that scripts need no defaults."""
    if isinstance(document, msgspec.Struct):
        values = {name: getattr(document, name) for name in document.__struct_fields__}
        return {n: plain(value) for n, value in values.items() if value is not msgspec.UNSET}
    if isinstance(document, dict):
        return {str(key): plain(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [plain(value) for value in document]
    return document


def json_text(document: Any) -> str:
    """Returns indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plain(document)), indent=2).decode()
