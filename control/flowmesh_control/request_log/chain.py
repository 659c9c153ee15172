"""Writes the segments of the request log, each after the last one of its chain.

A new leader continues after the newest valid segment in the store. Segments have the leader's epoch
in their keys, so a leader that was superseded and writes all the same makes a branch, which breaks
nothing. The day in the keys never goes back, so the newest segment is in the last folder.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_api.v1.keys import PublicKey
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import REQUEST_LOG
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.segments import (
    Position,
    SegmentHeader,
    SegmentLink,
    day_of,
    link_to,
    log_key,
    make_segment,
    parse_log_key,
    read_segment,
)
from flowmesh_control.request_log.signatures import SignatureError, Signer
from flowmesh_core.errors import ConditionFailedError
from flowmesh_store.ports import Records


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """Entries of a segment that may not be in the store yet, with its key and bytes."""

    entries: tuple[bytes, ...]
    lost: int
    key: str
    data: bytes


class ChainWriter:
    """Writes the segments of one epoch.

    Attributes:
        last: the newest segment of the chain; None before the first, and before the store was read.
    """

    def __init__(
        self, records: Records, signer: Signer, keys: PublicKeys, *, epoch: int, clock: Clock
    ) -> None:
        """Keeps the arguments; nothing is read before the first segment is written.

        Args:
            records: of the store, without the check of seals.
            signer: of this control plane.
            keys: of the store.
            epoch: of this leader.
            clock: Unix time in seconds.
        """
        self.last: SegmentLink | None = None
        self._records = records
        self._signer = signer
        self._keys = keys
        self._clock = clock
        self._position = Position(epoch, 0)
        self._begun = False
        self._unwritten: _Unwritten | None = None

    @property
    def begun(self) -> bool:
        """Whether this leader has read where the chain ends, in order to write."""
        return self._begun

    @property
    def is_writing(self) -> bool:
        """Whether a segment was prepared and is not in the store yet, as far as is known."""
        return self._unwritten is not None

    async def begin(self) -> None:
        """Reads where the chain ends, once.

        Raises:
            StoreError: try again.
        """
        if not self._begun:
            # In a thread: the first use of the library takes 15 ms.
            await asyncio.to_thread(self._signer.public_keys)
            await self._keys.remember()
            self.last = await find_last(self._records, await self._keys.all())
            self._begun = True

    def prepare(self, entries: Sequence[bytes], lost: int) -> None:
        """Makes the next segment, after :meth:`begin`; :meth:`finish` writes it."""
        self._prepare(tuple(entries), lost)

    async def finish(self) -> None:
        """Writes the segment that was prepared, if there is one.

        Raises:
            StoreError: it may or may not be written; try again, which writes the same bytes.
        """
        while (segment := self._unwritten) is not None:
            try:
                await self._records.write(segment.key, segment.data)
            except ConditionFailedError:
                found = await self._records.read(segment.key)
                if found is None or found.data != segment.data:
                    # Somebody else wrote under our key: it is left there for a check to find.
                    self._prepare(segment.entries, segment.lost)
                    continue
            self.last = link_to(segment.key, segment.data)
            self._unwritten = None

    def _prepare(self, entries: tuple[bytes, ...], lost: int) -> None:
        self._position = Position(self._position.epoch, self._position.seq + 1)
        last_day = "" if self.last is None else _day(self.last.segment)
        key = log_key(max(day_of(self._clock()), last_day), self._position)
        header = SegmentHeader(key, self.last, lost)
        self._unwritten = _Unwritten(
            entries, lost, key, make_segment(header, entries, self._signer)
        )


async def find_last(records: Records, keys: Sequence[PublicKey]) -> SegmentLink | None:
    """Returns the newest segment with a valid signature; None where there is none."""
    days = [day async for day in records.folders(REQUEST_LOG)]
    for day in sorted(days, reverse=True):
        found = [key async for key in records.keys(f"{REQUEST_LOG}{day}/") if parse_log_key(key)]
        for key in sorted(found, key=lambda k: parse_log_key(k) or Position(0, 0), reverse=True):
            record = await records.read(key)
            if record is not None and _is_valid(key, record.data, keys):
                return link_to(key, record.data)
    return None


def _is_valid(key: str, data: bytes, keys: Sequence[PublicKey]) -> bool:
    try:
        read_segment(key, data, keys)
    except SignatureError:
        return False
    return True


def _day(key: str) -> str:
    return key.removeprefix(REQUEST_LOG).partition("/")[0]
