"""Writes and reads the ledgers of runs: lines are buffered and flushed as segments.

A segment is written every second if there are new lines, and before a verdict is shown. The key of
a segment has its epoch and number. The first one of an epoch, number 0, is its *opening*: it says
how many segments of each earlier epoch were read when the run was recovered. Segments that an
earlier leader writes after that do not count.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import orjson

from flowmesh_control.records.epochs import SupersededError
from flowmesh_control.records.keys import ledger_prefix, parse_segment, segment_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import RESTORE, check_seal
from flowmesh_core.accounting.ledger_lines import Line, decode_lines, encode_lines
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError, FlowMeshError
from flowmesh_store.ports import Record, RecordStore

FLUSHES = 32
"""Runs whose lines are written concurrently."""
READS = 16
"""Segments of a run that are read concurrently."""
_Content = TypeVar("_Content")


@dataclass(slots=True)
class _Book:
    """One run's lines, of which the first ``written`` are durable.

    Attributes:
        sending: the end of a segment that was sent and not answered; 0 for none.
    """

    lines: list[Line]
    written: int
    next_seq: int
    sending: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LedgerWriter:
    """Writes the ledgers of all live runs in one epoch."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        self._records = records
        self.epoch = epoch
        self._books: dict[str, _Book] = {}
        self._dirty: set[str] = set()

    async def open(self, uid: str) -> tuple[Line, ...]:
        """Opens a recovered run: reads the segments that count and writes this epoch's opening.

        Returns:
            Its lines so far; empty for a new run, which does not need this call.

        Raises:
            SupersededError: a later epoch has opened it.
        """
        found = await read_segments(self._records, uid)
        opening = orjson.dumps({str(e): n for e, n in found.counts.items()})
        await self._write(uid, 0, opening)
        self._books[uid] = _Book(list(found.lines), len(found.lines), 1)
        return found.lines

    def append(self, uid: str, line: Line) -> None:
        """Adds a line; it is durable after the next flush."""
        book = self._books.get(uid)
        if book is None:
            book = self._books[uid] = _Book([], 0, 1)
        book.lines.append(line)
        self._dirty.add(uid)

    def lines(self, uid: str) -> Sequence[Line] | None:
        """Returns a live run's lines, written or not; None where the run is not open."""
        book = self._books.get(uid)
        return None if book is None else book.lines

    def lengths(self) -> dict[str, int]:
        """Returns the number of lines of each live run, written or not."""
        return {uid: len(book.lines) for uid, book in self._books.items()}

    async def flush(self, uid: str) -> None:
        """Writes a run's buffered lines as one segment.

        Raises:
            StoreUnavailableError, StoreFullError: the lines stay buffered; try again.
            SupersededError: another control plane wrote under this epoch.
        """
        book = self._books.get(uid)
        if book is None:
            return
        async with book.lock:
            if book.sending:  # it may have been written: the same segment must be sent again
                await self._write_until(uid, book, book.sending)
            await self._write_until(uid, book, len(book.lines))
            if book.written == len(book.lines):
                self._dirty.discard(uid)

    async def flush_all(self) -> None:
        """Writes the buffered lines of all runs, ``FLUSHES`` of them concurrently.

        Raises:
            SupersededError, StoreUnavailableError, StoreFullError: as :meth:`flush`, if any run
                could not be written; the others were.
        """
        left = iter(list(self._dirty))
        failures: list[Exception] = []
        side_by_side = min(FLUSHES, len(self._dirty))
        await asyncio.gather(*(self._flush_some(left, failures) for _ in range(side_by_side)))
        # A SupersededError takes precedence, because it ends this leader; others are retried.
        for failure in sorted(failures, key=lambda e: not isinstance(e, SupersededError)):
            raise failure

    async def _flush_some(self, left: Iterator[str], failures: list[Exception]) -> None:
        for uid in left:
            try:
                await self.flush(uid)
            except FlowMeshError as e:
                failures.append(e)

    def close(self, uid: str) -> None:
        """Removes an ended run's lines from memory; they are in the store."""
        self._books.pop(uid, None)
        self._dirty.discard(uid)

    async def _write_until(self, uid: str, book: _Book, end: int) -> None:
        """Writes the lines up to ``end`` as a segment, unless they are written already."""
        if book.written == end:
            return
        book.sending = end
        await self._write(uid, book.next_seq, encode_lines(book.lines[book.written : end]))
        book.written, book.sending = end, 0
        book.next_seq += 1

    async def _write(self, uid: str, seq: int, data: bytes) -> None:
        key = segment_key(uid, self.epoch, seq)
        try:
            await self._records.write(key, data)
        except ConditionFailedError:
            # Equal data are from an earlier call that was interrupted after its write.
            record = await self._records.read(key)
            if record is None or record.data != data:
                raise SupersededError(self.epoch, self.epoch) from None


@dataclass(frozen=True, slots=True)
class LedgerSegments:
    """The part of a run's ledger that counts.

    Attributes:
        lines: in the order in which they were written.
        counts: epoch → how many of its segments count, including the opening.
        opened: the last epoch that opened the run; 0 where none did.
    """

    lines: tuple[Line, ...]
    counts: Mapping[int, int]
    opened: int


async def read_segments(records: RecordStore, uid: str) -> LedgerSegments:
    """Reads a run's ledger, without segments that an earlier leader wrote too late.

    Raises:
        DamagedRecordError: a segment that counts cannot be read.
    """
    keys = [found async for found in known_keys(records, ledger_prefix(uid), parse_segment)]
    data: dict[tuple[int, int], Record] = {}
    for start in range(0, len(keys), READS):
        some = keys[start : start + READS]
        found = await asyncio.gather(*(records.read(key) for key, _ in some))
        data |= {at: r for (_, at), r in zip(some, found, strict=True) if r is not None}
    opened = max((e for e, n in data if n == 0), default=0)
    bounds: dict[int, int] = {}
    if opened:
        bounds = _decoded(_decode_opening, uid, (opened, 0), data)
    counting = [
        (epoch, seq)
        for epoch, seq in sorted(data)
        if not opened or epoch >= opened or seq < bounds.get(epoch, 0)
    ]
    counts: dict[int, int] = {}
    for epoch, seq in counting:
        counts[epoch] = seq + 1
    lines = [line for at in counting if at[1] > 0 for line in _decoded(decode_lines, uid, at, data)]
    return LedgerSegments(tuple(lines), counts, opened)


def _decoded(
    reading: Callable[[bytes], _Content],
    uid: str,
    at: tuple[int, int],
    data: Mapping[tuple[int, int], Record],
) -> _Content:
    """Decodes a segment."""
    check_seal(key := segment_key(uid, *at), data[at])
    try:
        return reading(data[at].data)
    except msgspec.DecodeError as e:
        raise DamagedRecordError(key, str(e), remedy=RESTORE) from e


def _decode_opening(data: bytes) -> dict[int, int]:
    """Decodes how many segments of each earlier epoch count."""
    return decode(_opening_decoder, data)


_opening_decoder = msgspec.json.Decoder(dict[int, int])
