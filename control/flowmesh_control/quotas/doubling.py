"""When to look for entries that are not needed any more: once there are twice as many as were left.

So each entry is looked at a few times, however many there are, and what is kept of runs that have
ended is at most as much as what is kept of others.
"""

LEAST = 256
"""The most entries for which it is not worth looking."""


class Doubling:
    """Remembers how many entries were left."""

    def __init__(self) -> None:
        self._due_at = LEAST

    def is_due(self, entries: int) -> bool:
        """Whether to look through the entries, given their number."""
        return entries >= self._due_at

    def left(self, entries: int) -> None:
        """Notes how many were needed."""
        self._due_at = max(LEAST, 2 * entries)
