"""The borders of chunks for rows that come in batches and are not all in memory.

Uploads are cut with it; the borders are those of :func:`flowmesh_core.dataset.chunking.borders`.
"""

from collections.abc import Sequence

from flowmesh_core.dataset.chunking import AVERAGE_ROWS, ROWS_MAX_FACTOR, cut_long


class RunningBorders:
    """Finds where chunks begin, given the rows' digests in order.

    It has the digests of the incomplete chunk in memory: at most ``maximum`` and twice the reach.

    Args:
        average: as for :func:`borders`.
    """

    def __init__(self, *, average: int = AVERAGE_ROWS) -> None:
        self._reach = average // 2
        self._limit = ROWS_MAX_FACTOR * average
        self._digests: list[str] = []
        self._before = 0
        """Rows before the first one in ``_digests``."""
        self._next = self._reach
        """The first row that has not been decided to begin a chunk or not."""
        self._start = 0
        """The first row of the incomplete chunk."""

    def add(self, digests: Sequence[str]) -> list[int]:
        """Adds the digests of the next rows.

        Returns:
            The first rows of chunks that have become certain, counted from the first row of all;
            the first chunk's 0 is never among them.
        """
        self._digests.extend(digests)
        found: list[int] = []
        while self._next + self._reach < self._before + len(self._digests):
            if self._is_border(self._next - self._before):
                found += [*self._cuts(self._next), self._next]
                self._start = self._next
                self._next += self._reach + 1
            else:
                self._next += 1
            # Where rows repeat for long, some cuts are certain before the next natural border is.
            if self._next - self._start > self._limit + self._reach:
                found += self._cuts(self._next)
        self._forget()
        return found

    def end(self) -> list[int]:
        """Returns the first rows of the last chunks, once all rows were added."""
        return self._cuts(self._before + len(self._digests))

    def _is_border(self, at: int) -> bool:
        digest, reach = self._digests[at], self._reach
        return digest < min(self._digests[at + 1 : at + reach + 1]) and digest < min(
            self._digests[at - reach : at]
        )

    def _cuts(self, end: int) -> list[int]:
        """Cuts a piece that is too long, up to a row that is the next border or not a border."""
        start = self._start - self._before
        cuts = cut_long(self._digests, start, end - self._before, self._reach, self._limit)
        if cuts:
            self._start = cuts[-1] + self._before
        return [cut + self._before for cut in cuts]

    def _forget(self) -> None:
        unneeded = min(self._start, self._next - self._reach) - self._before
        if unneeded > 0:
            del self._digests[:unneeded]
            self._before += unneeded
