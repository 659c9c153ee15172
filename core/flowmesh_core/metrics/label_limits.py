"""Label values that stay few: series by tenant or model must not grow without end."""

from collections.abc import Callable

OTHER = "other"
NONE = "none"
RECENT_S = 86400.0
"""A name that was counted within this time is retained."""


class LabelLimiter:
    """Limits the number of names at a time; others are ``other`` until a name has long been idle.

    The figures of a dropped name are dropped too: a counter that ends is harmless to its readers,
    one that jumps is not.

    Args:
        limit: how many names there may be.
        dropped: called with a name that is dropped.
    """

    def __init__(self, limit: int, dropped: Callable[[str], None]) -> None:
        self._limit = limit
        self._dropped = dropped
        self._seen_s: dict[str, float] = {}

    def name(self, value: str, now_s: float) -> str:
        """Returns the value itself, or ``other``."""
        if value in self._seen_s or self._make_space(now_s):
            self._seen_s[value] = now_s
            return value
        return OTHER

    def _make_space(self, now_s: float) -> bool:
        if len(self._seen_s) < self._limit:
            return True
        oldest = min(self._seen_s, key=self._seen_s.__getitem__)
        if now_s - self._seen_s[oldest] < RECENT_S:
            return False
        del self._seen_s[oldest]
        self._dropped(oldest)
        return True
