"""The borders of chunks where rows come one batch after another and are not held.

Uploads are cut with it; the borders are those of :func:`flowmesh_core.dataset.chunking.borders`.
"""

from collections.abc import Sequence

from flowmesh_core.dataset.chunking import AVERAGE_ROWS, ROWS_MAX_FACTOR, cut_long


class RunningBorders:
    """Finds where chunks begin, given the rows' digests in order.

    It holds the digests of the chunk that is not complete yet: at most ``maximum`` and twice the
    reach, whatever the rows.
    """

    def __init__(self, *, average: int = AVERAGE_ROWS) -> None:
        """Has seen no row; ``average`` is as for :func:`borders`."""
        self._reach = average // 2
        self._limit = ROWS_MAX_FACTOR * average
        self._held: list[str] = []
        self._before = 0
        """Rows before the first that is held."""
        self._next = self._reach
        """The first row of which it is not known whether it begins a chunk by its content."""
        self._start = 0
        """Where the chunk begins that is not complete yet."""

    def add(self, digests: Sequence[str]) -> list[int]:
        """Looks at the next rows.

        Returns:
            The first rows of chunks, counted from the first row of all, that are certain now and
            were not before; the first chunk's 0 is never among them.
        """
        self._held.extend(digests)
        found: list[int] = []
        while self._next + self._reach < self._before + len(self._held):
            if self._is_border(self._next - self._before):
                found += [*self._cuts(self._next), self._next]
                self._start = self._next
                self._next += self._reach + 1
            else:
                self._next += 1
            # What is certain before the next natural border is known, where rows repeat for long.
            if self._next - self._start > self._limit + self._reach:
                found += self._cuts(self._next)
        self._forget()
        return found

    def end(self) -> list[int]:
        """The first rows of the last chunks, once all rows were seen."""
        return self._cuts(self._before + len(self._held))

    def _is_border(self, at: int) -> bool:
        here, reach = self._held[at], self._reach
        return here < min(self._held[at + 1 : at + reach + 1]) and here < min(
            self._held[at - reach : at]
        )

    def _cuts(self, end: int) -> list[int]:
        """Cuts what is too long between the last border and a row that is none, or is the next."""
        start = self._start - self._before
        cuts = cut_long(self._held, start, end - self._before, self._reach, self._limit)
        if cuts:
            self._start = cuts[-1] + self._before
        return [cut + self._before for cut in cuts]

    def _forget(self) -> None:
        unneeded = min(self._start, self._next - self._reach) - self._before
        if unneeded > 0:
            del self._held[:unneeded]
            self._before += unneeded
