"""The output of a command: one JSON document, or text for people.

Results go to standard output, messages and progress to standard error, so that ``--json`` can
always be piped.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from flowmesh_cli.errors import DeclinedError
from flowmesh_cli.narrow_table import fitted
from flowmesh_cli.printable import printable

Names = str | Sequence[str]
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
        right: Names = "",
        whole: Names = "",
        cut: Names = "",
        optional: Names = "",
    ) -> list[str]:
        """Writes a table, and returns the headings of the columns that it has.

        All columns are written to a pipe or file. Headings are given as a list, or separated by
        spaces.

        Args:
            headings: one per column.
            rows: the cells.
            right: headings of right-aligned columns, such as numbers.
            whole: headings of columns that are never folded, such as uids to copy.
            cut: of columns whose values end with ``…`` where a terminal is too narrow. Others that
                are neither whole nor right-aligned are folded.
            optional: of columns that are left out where a terminal is too narrow, the least
                important first.
        """
        table, shown = self._fitted(
            headings, rows, _names(right), _names(whole), _names(cut), _names(optional)
        )
        self._print(table)
        return shown

    def _fitted(
        self,
        headings: list[str],
        rows: list[list[str]],
        numbers: Sequence[str],
        names: Sequence[str],
        short: Sequence[str],
        optional: Sequence[str],
    ) -> tuple[Table, list[str]]:
        """Returns a table as :meth:`table` writes it, and the headings of its columns."""
        shown = dict.fromkeys(range(len(headings)), 0)
        if _width(sys.stdout) is None:
            shown = fitted(
                headings,
                [[printable(cell) for cell in row] for row in rows],
                self.out.width,
                fixed={*numbers, *names} - {*short},
                cut=short,
                optional=optional,
            )
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for number, width in shown.items():
            heading = headings[number]
            table.add_column(
                heading,
                justify="right" if heading in numbers else "left",
                overflow="ellipsis" if width and heading in short else "fold",
                no_wrap=heading in names or bool(width and heading in short),
                width=width or None,
            )
        for row in rows:
            table.add_row(*(printable(row[number]).replace("[", "\\[") for number in shown))
        return table, [headings[number] for number in shown]

    def redrawn(
        self, draw: Callable[[], tuple[list[str], list[list[str]]]], *, right: Names, every_s: float
    ) -> None:
        """Shows a table that fills the screen of a terminal, drawn again until Ctrl-C.

        Args:
            draw: returns the headings and the rows.
            right: headings of right-aligned columns.
            every_s: the time between two pictures.
        """

        def picture() -> Table:
            return self._fitted(*draw(), _names(right), (), (), ())[0]

        with (
            contextlib.suppress(KeyboardInterrupt),
            Live(picture(), console=self.out, screen=True, auto_refresh=False) as live,
        ):
            while True:
                live.refresh()
                time.sleep(every_s)
                live.update(picture())

    def _print(self, table: Table) -> None:
        """Writes a table; to a pipe or file without the blanks that fill up its lines."""
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:
            self.out.print(table)
        lines = captured.get().split("\n")
        self.out.file.write("\n".join(line.rstrip(" ") for line in lines))


def _names(given: Names) -> Sequence[str]:
    return given.split() if isinstance(given, str) else given


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS


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
