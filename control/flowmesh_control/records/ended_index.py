"""The index of ended runs, with which a new leader starts without reading each of them.

``ended/<epoch>-<n>`` has a line for each run that ended, in segments; the last segment of an epoch
is rewritten as it grows. A line is written only after accounts that count all of the run are
durable, so a leader that finds it reads neither the run's ``final`` nor its ledger. A run without a
line, such as those of a leader's last second, is read completely and gets a line from the leader
that finds it.

What a leader may still write after another one has taken over (it was frozen between
``check_leads`` and its write, and thawed), and why none of it counts:

- *A run's ``final``*, under the run's own key. The new leader has opened the run's ledger; a
  ``final`` of an epoch before the last opening is ignored (``runs/recovery.py``).
- *Ledger segments and accounts*, under keys of its own epoch. The opening of the new leader says
  how many segments of each earlier epoch count (``ledger.py``), and the accounts of the latest
  epoch count.
- *A line of this index*, under keys of its own epoch. Here nothing of the run is read, so neither
  rule applies, and the line would hide a run that the new leader has made live again. Therefore a
  leader writes ``taken/<epoch>`` with the uids of the runs that it will open, before it opens the
  first one (``run_ownership.py``), and recovery uses a line only if its epoch is not before the
  last one that took the run. A leader that dies between the two writes does no harm: the run is
  then read, and its ``final`` counts.
- *Action results and lineage*: written once, and valid whichever leader wrote them.

Checking the leadership once more before each write would not do, since the freeze can come after
the check; comparing times would not either, since the clocks of two machines differ. Tests:
``test_a_line_of_a_leader_that_was_superseded_does_not_count``,
``test_a_leader_records_the_runs_that_it_opens_before_it_opens_them`` and
``test_a_leader_that_died_before_it_opened_a_run_makes_no_end_void``.
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
"""The most lines of a segment, which is rewritten every second while runs end."""
AT_ONCE = 16


class EndedRunEntry(msgspec.Struct, frozen=True):
    """A run that was ended by the leader of ``epoch``, and that the accounts count."""

    epoch: int
    run: RunSummary


class EndedRunIndex:
    """Writes one epoch's lines."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        self._records = records
        self._epoch = epoch
        self._waiting: list[EndedRunEntry] = []
        self._segment: list[EndedRunEntry] = []
        self._number = 1
        self._etag: str | None = None
        self._written = asyncio.Event()

    def add(self, final: FinalRecord) -> None:
        """Adds a run whose end is durable; its line is written after the next accounts."""
        self._waiting.append(EndedRunEntry(final.epoch, summary_of(final.status)))

    def waiting(self) -> int:
        """Returns the number of unwritten lines, which accounts captured now will count."""
        return len(self._waiting)

    async def written(self, uid: str) -> None:
        """Returns once the durable accounts count a run that has ended."""
        while any(entry.run.uid == uid for entry in self._waiting):
            await self._written.wait()

    async def write(self, count: int) -> None:
        """Writes the oldest ``count`` lines, whose accounts are durable.

        Raises:
            StoreUnavailableError, StoreFullError: lines that were not written stay queued.
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
            self._written.set()
            self._written = asyncio.Event()

    async def _put(self, lines: Sequence[EndedRunEntry]) -> None:
        key, data = ended_key(self._epoch, self._number), msgspec.json.encode(lines)
        try:
            self._etag = await self._records.write(key, data, if_match=self._etag)
        except ConditionFailedError:
            # An earlier write of ours whose answer was lost: only this epoch writes the key.
            found = await self._records.read(key)
            self._etag = None if found is None else found.etag
            self._etag = await self._records.write(key, data, if_match=self._etag)


async def read_ended(records: RecordStore) -> dict[str, EndedRunEntry]:
    """Returns the latest line of each run that has one, by uid.

    Must be called before the accounts are read, so that they count every run that is found here.
    """
    keys = [key async for key, _ in known_keys(records, ENDED, parse_segment)]
    limit = asyncio.Semaphore(AT_ONCE)

    async def segment(key: str) -> list[EndedRunEntry]:
        async with limit:
            record = await records.read(key)
        try:
            return [] if record is None else decode_record(_decoder, key, record)
        except DamagedRecordError as e:
            log.warning("%s; the runs that it names are read whole", e)
            return []

    segments = await asyncio.gather(*map(segment, keys))
    return {line.run.uid: line for lines in segments for line in lines}


_decoder = msgspec.json.Decoder(list[EndedRunEntry])
