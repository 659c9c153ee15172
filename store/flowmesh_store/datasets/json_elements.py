"""Splits a JSON file that is one list into its elements, without reading the whole list."""

import re
from collections.abc import Iterator
from typing import BinaryIO

import orjson

from flowmesh_core.errors import IdentityError
from flowmesh_store.datasets.budget import ROW_BYTES_MAX, long_row

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_MARK = b"\xef\xbb\xbf"
_PIECE_BYTES = 1 << 20
_REMEDY = "the file must be a list of objects; one object a line is .jsonl"
Element = tuple[bytes, int]
"""The text of an element, and the line on which it begins, from 1."""


def json_elements(file: BinaryIO, name: str) -> Iterator[Element]:
    """Yields the elements of the list in a file, without parsing them.

    Raises:
        IdentityError: the file is not a list, or ends within it; names the line.
        ContentLimitError: an element is too long.
    """
    return _Splitter(file, name).elements()


class _Splitter:
    """A buffer that holds the element that is being read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._buffer = file.read(_PIECE_BYTES).removeprefix(_MARK)
        self._line = 1
        self._start = 0
        """Offset of the current element, which begins on line ``_line``."""
        self._at = 0
        """Offset at which to search for the next token."""

    def elements(self) -> Iterator[Element]:
        self._open()
        depth, first = 0, True
        while True:
            token = self._token()
            if depth and token in (b"]", b"}"):
                depth -= 1
            elif token in (b"[", b"{"):
                depth += 1
            elif not depth and token in (b",", b"]", b"}"):
                text = self._buffer[self._start : self._at - 1]
                if text.strip() or token != b"]" or not first:
                    yield self._element(text)
                self._drop()
                first = False
                if token != b",":
                    break
        self._close(token)

    def _open(self) -> None:
        while not self._buffer.strip() and self._more():
            pass
        begin = len(self._buffer) - len(self._buffer.lstrip())
        if self._buffer[begin : begin + 1] != b"[":
            raise self._no_list()
        self._at = begin + 1
        self._drop()

    def _no_list(self) -> IdentityError:
        """Returns the error for a file that is not a list: other JSON, or not JSON.

        Which one is found out by parsing the first part of the file only.
        """
        self._more()
        try:
            orjson.loads(self._buffer)
        except orjson.JSONDecodeError as e:
            where = f"{self._name}, line {e.lineno}"
            return IdentityError(f"not JSON ({e.msg})", where=where, remedy=_REMEDY)
        return IdentityError(
            "not a list of objects", where=self._name, remedy="write [ {...}, {...} ]"
        )

    def _token(self) -> bytes:
        while True:
            found = _TOKEN.search(self._buffer, self._at)
            if found is not None and found[0] != b'"':
                self._at = found.end()
                return found[0]
            # The rest has no token, or only a part of a string: read more and search again.
            self._at = len(self._buffer) if found is None else found.start()
            if len(self._buffer) - self._start > ROW_BYTES_MAX:
                raise long_row(f"{self._name}, line {self._line}")
            if not self._more():
                raise self._broken("unexpected end of data")

    def _element(self, text: bytes) -> Element:
        if len(text) > ROW_BYTES_MAX:
            raise long_row(f"{self._name}, line {self._line}")
        if not text.strip():
            raise self._broken("a value is missing")
        return text, self._line

    def _drop(self) -> None:
        """Moves the start to the end of the text that was processed."""
        self._line += self._buffer.count(b"\n", self._start, self._at)
        self._start = self._at

    def _more(self) -> bool:
        """Reads more of the file, and drops the buffer before the current element."""
        rest = self._buffer[self._start :]
        # Doubles the buffer, so that a long string is searched from its start only a few times.
        piece = self._file.read(max(_PIECE_BYTES, min(len(rest), ROW_BYTES_MAX)))
        self._buffer = rest + piece
        self._at -= self._start
        self._start = 0
        return bool(piece)

    def _close(self, token: bytes) -> None:
        if token != b"]":
            raise self._broken("unexpected character")
        while not self._buffer[self._start :].strip():
            self._start = self._at = len(self._buffer)
            if not self._more():
                return
        raise self._broken("unexpected content after document")

    def _broken(self, what: str) -> IdentityError:
        where = f"{self._name}, line {self._line}"
        return IdentityError(f"not JSON ({what})", where=where, remedy=_REMEDY)
