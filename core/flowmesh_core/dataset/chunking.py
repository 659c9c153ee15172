"""Where a data set is cut into chunks: by the content of the rows, not by counting.

A row begins a chunk where its digest is the least among the ``reach`` rows before it and the
``reach`` rows after it. This depends on those rows only, and two such rows are more than ``reach``
apart, so an insert, a change or a removal of one row of distinct rows can move at most two borders:
it touches at most three chunks, whatever the data. Chunks have at least ``reach + 1`` rows (the
first ``reach``) and ``2 * reach + 1`` on average.

Where rows repeat there may be no least row for long; a piece of more than ``maximum`` rows is cut
again at its lowest digests. On distinct rows that practically never happens.
"""

from collections.abc import Sequence

AVERAGE_ROWS = 32
ROWS_MAX_FACTOR = 8
"""The most rows of a chunk, as a multiple of the average."""


def borders(
    row_digests: Sequence[str], *, average: int = AVERAGE_ROWS, maximum: int | None = None
) -> list[int]:
    """Returns the first row of every chunk.

    Args:
        row_digests: the rows' digests in order.
        average: about how many rows a chunk has, at least 2; the minimum is about half of it.
        maximum: the most rows that a chunk may have, at least twice the average; eight times the
            average where None.

    Returns:
        Ascending positions that begin with 0; empty where there are no rows.

    Raises:
        ValueError: the average or the maximum is too small.
    """
    reach = average // 2
    limit = ROWS_MAX_FACTOR * average if maximum is None else maximum
    if reach < 1 or limit < 2 * average:
        raise ValueError("borders needs average >= 2 and maximum >= 2 * average")
    if not row_digests:
        return []
    found = [0, *_least_in_reach(row_digests, reach)]
    out: list[int] = []
    for start, end in zip(found, [*found[1:], len(row_digests)], strict=True):
        out.append(start)
        if end - start > limit:
            out.extend(cut_long(row_digests, start, end, reach, limit))
    return out


def _least_in_reach(digests: Sequence[str], reach: int) -> list[int]:
    """Rows strictly below all others within reach, where the reach is full on both sides."""
    found: list[int] = []
    i, last = reach, len(digests) - reach
    while i < last:
        digest = digests[i]
        after = digests[i + 1 : i + reach + 1]
        least_after = min(after)
        if least_after <= digest:
            # No row before that least one can be a border, since the least is within its reach.
            i += after.index(least_after) + 1
        elif min(digests[i - reach : i]) <= digest:
            i += 1
        else:
            found.append(i)
            i += reach + 1
    return found


def cut_long(digests: Sequence[str], start: int, end: int, reach: int, limit: int) -> list[int]:
    """Cuts a piece at the least digest of each span; of equal ones at the last, for long chunks."""
    cuts: list[int] = []
    while end - start > limit:
        low, high = start + reach + 1, min(start + limit, end - reach - 1)
        start = min(range(low, high + 1), key=lambda i: (digests[i], -i))
        cuts.append(start)
    return cuts
