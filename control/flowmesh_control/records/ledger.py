"""The ledger's writer: lines gather in memory and are flushed as segments.

A segment is written each second where there is something to write, and before a verdict is shown.
Segments are keyed by epoch and number; the first of an epoch, number 0, is its *opening*: it says
how many segments of each earlier epoch were read when the run was taken up. Segments that a former
leader writes after that are not counted by anyone.
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
from flowmesh_core.accounting.ledger_lines import Line, decode_lines, encode_lines
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError, FlowMeshError
from flowmesh_store.ports import RecordStore

FLUSHES = 32
"""Runs whose lines are written side by side."""
READS = 16
"""Segments of a run that are read side by side."""
_Content = TypeVar("_Content")


@dataclass(slots=True)
class _Book:
    """One run's lines: those written, and those still to be written.

    Attributes:
        sending: up to which line a segment was sent whose answer has not come; 0 where none was.
    """

    lines: list[Line]
    written: int
    next_seq: int
    sending: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LedgerWriter:
    """All live runs' ledgers in one epoch."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        """Takes where to write, and the epoch to write as."""
        self._records = records
        self.epoch = epoch
        self._books: dict[str, _Book] = {}
        self._dirty: set[str] = set()

    async def open(self, uid: str) -> tuple[Line, ...]:
        """Takes a run up: reads what counts of earlier epochs, and closes them with an opening.

        Returns:
            Its lines so far; empty for a new run (which needs no call of this).

        Raises:
            SupersededError: a later epoch has taken it up.
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
        """A live run's lines, written or not; None where the run is not open here."""
        book = self._books.get(uid)
        return None if book is None else book.lines

    def lengths(self) -> dict[str, int]:
        """How many lines each live run has, written or not."""
        return {uid: len(book.lines) for uid, book in self._books.items()}

    async def flush(self, uid: str) -> None:
        """Writes a run's gathered lines as one segment.

        Raises:
            StoreUnavailableError, StoreFullError: nothing was written; call it again.
            SupersededError: another control plane wrote under this epoch.
        """
        book = self._books.get(uid)
        if book is None:
            return
        async with book.lock:
            if book.sending:  # its answer was lost, and it may be there: again just as it was
                await self._write_until(uid, book, book.sending)
            await self._write_until(uid, book, len(book.lines))
            if book.written == len(book.lines):
                self._dirty.discard(uid)

    async def flush_all(self) -> None:
        """Writes all that has gathered, ``FLUSHES`` runs side by side.

        Raises:
            SupersededError, StoreUnavailableError, StoreFullError: as :meth:`flush`, of the runs
                that could not be written; the others are.
        """
        left = iter(list(self._dirty))
        failures: list[Exception] = []
        side_by_side = min(FLUSHES, len(self._dirty))
        await asyncio.gather(*(self._flush_some(left, failures) for _ in range(side_by_side)))
        # That another leads now is what counts; the rest is tried again.
        for failure in sorted(failures, key=lambda e: not isinstance(e, SupersededError)):
            raise failure

    async def _flush_some(self, left: Iterator[str], failures: list[Exception]) -> None:
        for uid in left:
            try:
                await self.flush(uid)
            except FlowMeshError as e:
                failures.append(e)

    def close(self, uid: str) -> None:
        """Forgets an ended run's lines; they are in the store."""
        self._books.pop(uid, None)
        self._dirty.discard(uid)

    async def _write_until(self, uid: str, book: _Book, end: int) -> None:
        """Writes the lines up to this one as a segment; nothing where they are all written."""
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
            # Ours, where an earlier call was cut off after it had written.
            record = await self._records.read(key)
            if record is None or record.data != data:
                raise SupersededError(self.epoch, self.epoch) from None


@dataclass(frozen=True, slots=True)
class LedgerSegments:
    """What counts of a run's ledger.

    Attributes:
        lines: in the order they were written.
        counts: epoch → segments of it that count, the opening included.
        opened: the last epoch that took the run up; 0 where none did.
    """

    lines: tuple[Line, ...]
    counts: Mapping[int, int]
    opened: int


async def read_segments(records: RecordStore, uid: str) -> LedgerSegments:
    """Reads a run's ledger, leaving out what a former leader wrote too late.

    Raises:
        DamagedRecordError: a segment that counts cannot be read.
    """
    keys = [found async for found in known_keys(records, ledger_prefix(uid), parse_segment)]
    data: dict[tuple[int, int], bytes] = {}
    for start in range(0, len(keys), READS):
        some = keys[start : start + READS]
        found = await asyncio.gather(*(records.read(key) for key, _ in some))
        data |= {at: r.data for (_, at), r in zip(some, found, strict=True) if r is not None}
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
    data: Mapping[tuple[int, int], bytes],
) -> _Content:
    """What a segment says."""
    try:
        return reading(data[at])
    except msgspec.DecodeError as e:
        raise DamagedRecordError(
            segment_key(uid, *at), str(e), remedy="restore the object from a copy of the store"
        ) from e


def _decode_opening(data: bytes) -> dict[int, int]:
    """How many segments of each earlier epoch the leader that opened the ledger found."""
    return decode(_opening_decoder, data)


_opening_decoder = msgspec.json.Decoder(dict[int, int])
