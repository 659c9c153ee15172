"""Label values that stay few: what is counted by tenant or model must not grow without end."""

from collections.abc import Callable

OTHER = "other"
NONE = "none"
RECENT_S = 86400.0
"""Who was seen within this time keeps its name."""


class LabelLimiter:
    """At most so many names at a time; further ones are ``other`` until a name has long been idle.

    A name that gives way takes its figures with it: a counter that ends is harmless to whoever
    reads it, one that jumps is not.
    """

    def __init__(self, limit: int, dropped: Callable[[str], None]) -> None:
        """Takes how many names there may be, and who is told of one that gives way."""
        self._limit = limit
        self._dropped = dropped
        self._seen_s: dict[str, float] = {}

    def name(self, value: str, now_s: float) -> str:
        """The value itself, or ``other``."""
        if value in self._seen_s or self._room(now_s):
            self._seen_s[value] = now_s
            return value
        return OTHER

    def _room(self, now_s: float) -> bool:
        if len(self._seen_s) < self._limit:
            return True
        oldest = min(self._seen_s, key=self._seen_s.__getitem__)
        if now_s - self._seen_s[oldest] < RECENT_S:
            return False
        del self._seen_s[oldest]
        self._dropped(oldest)
        return True
