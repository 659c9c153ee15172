"""Limits of one rendering of a template: iterations, and the size of what it makes.

Used by ``templates`` and the filters of ``template_filters``. The counts are the same on every
machine. They limit memory: a result that may grow is estimated before it is made, and counted
after.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jinja2.exceptions import SecurityError

TURNS_MAX = 100_000
"""Iterations of loops, and calls, in one rendering, since it delays all tenants of its engine host.
"""
MADE_MAX = 1_000_000
"""Characters and items that operators and filters make in one rendering, all together."""
PRINTED_MAX = 10_000_000
"""Characters that expressions, macros and blocks print; nested ones are printed several times."""
COPIED_MAX = 100_000_000
"""Characters of the results of other filters, methods and slices, which never grow."""
CHARS_PER_ITEM = 10
"""Characters that an item of a copied list counts as."""
ONCE_MAX = 10 * MADE_MAX
"""An estimate beyond this is refused, though the result may be smaller."""
BITS_MAX = 1024
"""Bits of an integer, so that repeated squaring soon ends."""


class RenderingMeter:
    """Counts one rendering.

    Attributes:
        turns, made, printed, copied: so far.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.made = 0
        self.printed = 0
        self.copied = 0
        self._sizes: dict[int, tuple[Any, int]] = {}

    def turn(self) -> None:
        """Counts an iteration of a loop, or a call.

        Raises:
            SecurityError: there were too many.
        """
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise SecurityError(
                f"more than {TURNS_MAX:,} iterations of loops and calls for one row"
            )

    def turns_of(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the values, each counted as an iteration."""
        for value in values:
            self.turn()
            yield value

    def make(self, size: int) -> None:
        """Counts characters or items before they are made.

        Raises:
            SecurityError: there were too many.
        """
        self.made = min(self.made + max(0, size), MADE_MAX + 1)
        if self.made > MADE_MAX:
            raise SecurityError(f"more than {MADE_MAX:,} characters made for one row")

    def makes(self, value: Any) -> Any:
        """Returns a new value, counted by its characters or items.

        Raises:
            SecurityError: it is too much.
        """
        if isinstance(value, str | bytes | list | tuple | dict):
            self.make(len(value))
        return self.checked(value)

    def copies(self, value: Any) -> Any:
        """Returns a value that is a part or another form of an existing one, counted.

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
        """Returns the value, unless it would be very large when printed.

        Raises:
            SecurityError: it would be; a list may contain another many times.
        """
        if isinstance(value, list | tuple | dict):
            refuse_large(self.size(value))
        return value

    def items(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the values, each counted as one that is made."""
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
        """Returns the characters of a text, or of everything in a collection, at any depth."""
        if isinstance(value, str | bytes):
            return len(value)
        if not isinstance(value, list | tuple | dict):
            return 1
        known = self._sizes.get(id(value))
        if known is None:  # the value is stored too, so that its id cannot be reused for another
            items = value if not isinstance(value, dict) else [*value.keys(), *value.values()]
            known = self._sizes[id(value)] = (value, 1 + sum(map(self.size, items)))
        return known[1]


def refuse_large(size: float, what: str = "value") -> None:
    """Refuses a value that would need too much memory at once.

    Args:
        size: an upper bound of its characters or items.
        what: the kind of value, for the error.

    Raises:
        SecurityError: it would.
    """
    if size > ONCE_MAX:
        raise SecurityError(f"a {what} of size {size:g}, of at most {ONCE_MAX}")


def small_number(value: Any) -> Any:
    """Returns a number, unless it is an integer of too many digits.

    Raises:
        SecurityError: it is.
    """
    if isinstance(value, int) and value.bit_length() > BITS_MAX:
        raise SecurityError(f"an integer of {value.bit_length()} bits, of at most {BITS_MAX}")
    return value
