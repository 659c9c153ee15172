"""Checks of single values in a message; ``validation`` combines them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from flowmesh_core.identity.digest import is_digest

NAME_CHARS = 253
TEXT_CHARS = 1024
ENTRIES_MAX = 4096
"""Entries of a table of texts."""
_SHOWN_CHARS = 80
_DIGITS_MAX = 19

Limits = tuple[tuple[str, float], ...]
"""Fields with the largest number that each may have; the smallest is 0."""


class MessageProblem(msgspec.Struct, frozen=True, gc=False):
    """A value in a message that breaks the protocol.

    Attributes:
        field: e.g. ``ended[3].usage.run_s``.
        text: the value and what was expected.
    """

    field: str
    text: str

    def within(self, place: str) -> "MessageProblem":
        """Returns the same problem of an item at a place in the message."""
        return MessageProblem(f"{place}.{self.field}", self.text)

    def __str__(self) -> str:
        """Returns field and text in one line."""
        return f"{self.field}: {self.text}"


def counts(message: Any, limits: Iterable[tuple[str, int]]) -> MessageProblem | None:
    """Returns the first field that has more items than its limit."""
    for name, most in limits:
        count = len(getattr(message, name))
        if count > most:
            return too_many(name, count, most)
    return None


def number(item: Any, limits: Limits) -> MessageProblem | None:
    """Returns the first field that is not between 0 and its limit; NaN is not."""
    for name, most in limits:
        value = getattr(item, name)
        if not 0 <= value <= most:
            return outside(name, value, most)
    return None


def table(name: str, table: Mapping[str, str]) -> MessageProblem | None:
    """Returns a problem if there are too many entries, or texts that are too long."""
    if len(table) > ENTRIES_MAX:
        return too_many(name, len(table), ENTRIES_MAX)
    for key, value in table.items():
        if not 0 < len(key) <= NAME_CHARS or len(value) > TEXT_CHARS:
            return MessageProblem(
                f"{name}[{short(key)}]", "the value or its name is too long, or the name is empty"
            )
    return None


def text(name: str, text: str, *, least: int = 1) -> MessageProblem | None:
    """Returns a problem if it is not printable text of bounded length."""
    if least <= len(text) <= NAME_CHARS and text.isprintable():
        return None
    return MessageProblem(
        name, f"{short(text)} is not printable text of {least} to {NAME_CHARS} characters"
    )


def digest(name: str, text: str) -> MessageProblem | None:
    """Returns a problem if it is not a digest."""
    if is_digest(text):
        return None
    return MessageProblem(name, f"{short(text)} is not a digest")


def one_of(name: str, text: str, known: frozenset[Any]) -> MessageProblem | None:
    """Returns a problem if it is not one of the known words."""
    if text in known:
        return None
    return MessageProblem(name, f"{short(text)} is not one of {', '.join(sorted(known))}")


def outside(name: str, value: float, most: float) -> MessageProblem:
    """Returns the problem of a number outside its limits."""
    return MessageProblem(name, f"{value!r} is not a number between 0 and {most:g}")


def too_many(name: str, count: int, most: int) -> MessageProblem:
    """Returns the problem of too many items."""
    return MessageProblem(name, f"{count} of at most {most}")


def is_number(text: str) -> bool:
    """Whether this is a decimal number of at most 63 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def short(text: str) -> str:
    """Returns text in the form that a log line shows."""
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")
