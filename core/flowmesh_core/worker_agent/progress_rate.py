"""Predicts when an attempt ends, from the progress that its engine reports.

A drain uses it to decide which attempts may end and which must write a checkpoint.
"""


class ProgressRate:
    """The progress of one attempt over time; that of a resumed one does not start at 0."""

    __slots__ = ("_first", "_last", "_total")

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._total = 0.0

    def seen(self, now_s: float, done: float, total: float) -> None:
        """Records progress; ``now_s`` is of any clock that does not step."""
        if self._first is None:
            self._first = (now_s, done)
        self._last = (now_s, done)
        self._total = total

    def remaining_s(self, now_s: float) -> float:
        """Returns seconds until its end at this pace; infinite if that is unknown."""
        if self._first is None or self._total <= 0:
            return float("inf")
        (first_s, first_done), (last_s, done) = self._first, self._last
        if done <= first_done or last_s <= first_s:
            return float("inf")
        rest_s = (self._total - done) * (last_s - first_s) / (done - first_done)
        return max(0.0, rest_s - (now_s - last_s))
