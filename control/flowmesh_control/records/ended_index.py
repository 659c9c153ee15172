"""The index of ended runs: what the next leader need not read of each of them before it serves.

``ended/<epoch>-<n>`` holds a line for each run that ended, in segments; the last one of an epoch is
written anew as it grows. A line is written after the accounts that count all of the run: who finds
it reads neither the run's ``final`` nor its ledger. A run without one, such as those of a leader's
last second, is read whole and gets its line from the leader that found it.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.records.keys import ENDED, ended_key, parse_segment
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import FinalRecord, decode_record, summary_of
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

LINES = 200
"""Of a segment: it is written every second while runs end."""
AT_ONCE = 16


class EndedRunEntry(msgspec.Struct, frozen=True):
    """A run that ended, by the leader of ``epoch``; counted in the accounts."""

    epoch: int
    run: RunSummary


class EndedRunIndex:
    """One epoch's lines."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        """Takes where to write, and the epoch to write as."""
        self._records = records
        self._epoch = epoch
        self._waiting: list[EndedRunEntry] = []
        self._segment: list[EndedRunEntry] = []
        self._number = 1
        self._etag: str | None = None

    def add(self, final: FinalRecord) -> None:
        """Takes in a run whose end is durable; written with the next accounts."""
        self._waiting.append(EndedRunEntry(final.epoch, summary_of(final.status)))

    def waiting(self) -> int:
        """How many lines the accounts that are captured now will count."""
        return len(self._waiting)

    async def write(self, count: int) -> None:
        """Writes the oldest ``count`` lines that wait: the accounts that count them are durable.

        Raises:
            StoreUnavailableError, StoreFullError: those that were not written wait on.
        """
        while count > 0:
            if len(self._segment) >= LINES:
                self._segment, self._etag = [], None
                self._number += 1
            taken = self._waiting[: min(count, LINES - len(self._segment))]
            await self._put([*self._segment, *taken])
            self._segment += taken
            del self._waiting[: len(taken)]
            count -= len(taken)

    async def _put(self, lines: Sequence[EndedRunEntry]) -> None:
        key, data = ended_key(self._epoch, self._number), msgspec.json.encode(lines)
        try:
            self._etag = await self._records.write(key, data, if_match=self._etag)
        except ConditionFailedError:
            # A write whose answer was lost: the key is this epoch's alone.
            found = await self._records.read(key)
            self._etag = None if found is None else found.etag
            self._etag = await self._records.write(key, data, if_match=self._etag)


async def read_ended(records: RecordStore) -> dict[str, EndedRunEntry]:
    """The line of each run that has one, by uid; the latest where there are several.

    To be called before the accounts are read: they then count whatever is found here.
    """
    keys = [key async for key, _ in known_keys(records, ENDED, parse_segment)]
    limit = asyncio.Semaphore(AT_ONCE)

    async def segment(key: str) -> list[EndedRunEntry]:
        async with limit:
            record = await records.read(key)
        try:
            return [] if record is None else decode_record(_decoder, key, record.data)
        except DamagedRecordError as e:
            log.warning("%s; the runs that it names are read whole", e)
            return []

    segments = await asyncio.gather(*map(segment, keys))
    return {line.run.uid: line for lines in segments for line in lines}


_decoder = msgspec.json.Decoder(list[EndedRunEntry])
