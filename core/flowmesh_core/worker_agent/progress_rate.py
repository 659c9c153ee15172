"""How fast an attempt gets on, from what its engine said last: when it may be done."""


class ProgressRate:
    """The progress of one attempt over time; a resumed one does not start at 0."""

    __slots__ = ("_first", "_last", "_total")

    def __init__(self) -> None:
        """Starts unknown."""
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._total = 0.0

    def seen(self, now_s: float, done: float, total: float) -> None:
        """The engine said how far it is; ``now_s`` on any clock that does not step."""
        if self._first is None:
            self._first = (now_s, done)
        self._last = (now_s, done)
        self._total = total

    def remaining_s(self, now_s: float) -> float:
        """Seconds until it is done at this pace; infinite where that is unknown."""
        if self._first is None or self._total <= 0:
            return float("inf")
        (began_s, begun), (said_s, done) = self._first, self._last
        if done <= begun or said_s <= began_s:
            return float("inf")
        rest_s = (self._total - done) * (said_s - began_s) / (done - begun)
        return max(0.0, rest_s - (now_s - said_s))
