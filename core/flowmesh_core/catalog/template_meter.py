"""What one rendering of a template may take: turns, and what it makes, in characters and items.

Used by ``templates`` and the filters of ``template_filters``. The counts are the same on every
machine. They bound memory: whatever grows is estimated before it is made, and counted after.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2.exceptions import SecurityError

TURNS_MAX = 100_000
"""Turns of loops, and calls, in one rendering: it holds up all tenants of its engine host."""
MADE_MAX = 1_000_000
"""Characters and items that operators and filters make in one rendering, all together."""
PRINTED_MAX = 10_000_000
"""Characters that expressions, macros and blocks print; what is nested prints several times."""
COPIED_MAX = 100_000_000
"""Characters of what other filters, methods and slices give: no more than they take."""
CHARS_PER_ITEM = 10
"""What an item of a copied list counts."""
ONCE_MAX = 10 * MADE_MAX
"""An estimate beyond this is refused, though what is made may be less."""
BITS_MAX = 1024
"""Of an integer: squaring it again and again soon ends."""


class RenderingMeter:
    """Counts one rendering.

    Attributes:
        turns, made, printed, copied: so far.
    """

    def __init__(self) -> None:
        """Starts at zero."""
        self.turns = 0
        self.made = 0
        self.printed = 0
        self.copied = 0
        self._sizes: dict[int, tuple[Any, int]] = {}

    def turn(self) -> None:
        """Counts a turn of a loop, or a call.

        Raises:
            SecurityError: there were too many.
        """
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise SecurityError(f"more than {TURNS_MAX:,} turns of loops and calls for one row")

    def turns_of(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each counted as a turn."""
        for value in values:
            self.turn()
            yield value

    def make(self, size: int) -> None:
        """Counts characters or items that are about to be made.

        Raises:
            SecurityError: there were too many.
        """
        self.made = min(self.made + max(0, size), MADE_MAX + 1)
        if self.made > MADE_MAX:
            raise SecurityError(f"more than {MADE_MAX:,} characters made for one row")

    def makes(self, value: Any) -> Any:
        """The value, which was made just now: a text counts its characters, a list its items.

        Raises:
            SecurityError: it is too much.
        """
        if isinstance(value, str | bytes | list | tuple | dict):
            self.make(len(value))
        return self.checked(value)

    def copies(self, value: Any) -> Any:
        """The value, which is a part or another form of what there was, counted.

        Raises:
            SecurityError: there were too many.
        """
        if isinstance(value, str | bytes | list | tuple | dict):
            size = len(value) * (1 if isinstance(value, str | bytes) else CHARS_PER_ITEM)
            self.copied = min(self.copied + size, COPIED_MAX + 1)
            if self.copied > COPIED_MAX:
                raise SecurityError(f"more than {COPIED_MAX:,} characters copied for one row")
        return value

    def checked(self, value: Any) -> Any:
        """The value, if it would not be very large written out.

        Raises:
            SecurityError: it would; a list may hold another many times over.
        """
        if isinstance(value, list | tuple | dict):
            refuse_large(self.size(value))
        return value

    def items(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each counted as one that is made."""
        for value in values:
            self.make(1)
            yield value

    def print(self, size: int) -> None:
        """Counts characters that are printed.

        Raises:
            SecurityError: there were too many.
        """
        self.printed = min(self.printed + size, PRINTED_MAX + 1)
        if self.printed > PRINTED_MAX:
            raise SecurityError(f"more than {PRINTED_MAX:,} characters printed for one row")

    def size(self, value: Any) -> int:
        """Characters of a text; of a list, a tuple or a map all that is in it, at any depth."""
        if isinstance(value, str | bytes):
            return len(value)
        if not isinstance(value, list | tuple | dict):
            return 1
        known = self._sizes.get(id(value))
        if known is None:  # the value is kept with it, or its id might come to mean another
            items = value if not isinstance(value, dict) else [*value.keys(), *value.values()]
            known = self._sizes[id(value)] = (value, 1 + sum(map(self.size, items)))
        return known[1]


def refuse_large(size: float, what: str = "value") -> None:
    """Refuses what would take too much memory at once.

    Args:
        size: an upper bound of its characters or items.
        what: it is, for the error.

    Raises:
        SecurityError: it would.
    """
    if size > ONCE_MAX:
        raise SecurityError(f"a {what} of size {size:g}, of at most {ONCE_MAX}")


def small_number(value: Any) -> Any:
    """A number, if it is no integer of many digits.

    Raises:
        SecurityError: it is.
    """
    if isinstance(value, int) and value.bit_length() > BITS_MAX:
        raise SecurityError(f"an integer of {value.bit_length()} bits, of at most {BITS_MAX}")
    return value
