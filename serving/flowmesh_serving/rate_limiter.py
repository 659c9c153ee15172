"""Limits a rate by a token bucket, so that it may be exceeded for a moment."""


class RateLimiter:
    """Tokens that come back at a constant rate."""

    __slots__ = ("_at_s", "_left")

    def __init__(self, left: float, at_s: float) -> None:
        """Starts with ``left`` tokens at ``at_s``."""
        self._left = left
        self._at_s = at_s

    def take(self, now_s: float, per_s: float, burst: float) -> bool:
        """Takes a token; returns whether there was one.

        Args:
            now_s: the time.
            per_s: tokens that have come back in each second since the last call.
            burst: tokens that it holds at most.
        """
        self._left = min(burst, self._left + max(0.0, now_s - self._at_s) * per_s)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
