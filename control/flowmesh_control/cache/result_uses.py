"""When published results were last used: what a bounded store deletes first is what rests longest.

The action cache reports each hit. A result without an entry was last used when it was written. The
entries are written at each collection, and may be lost: then their results count as unused since.
"""

import logging
from collections import OrderedDict

import msgspec

from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import USED_RESULTS
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.units import Digest
from flowmesh_store.keys import action_key
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

ENTRIES_MAX = 100_000
_decoder = msgspec.json.Decoder(dict[str, float])


class ResultUses:
    """The last uses of results, of the results that were used most recently."""

    def __init__(
        self, records: RecordStore, clock: Clock, *, entries_max: int = ENTRIES_MAX
    ) -> None:
        """Starts empty; :meth:`load` reads what an earlier leader wrote.

        Args:
            records: of the store.
            clock: Unix time in seconds.
            entries_max: the most results with an entry.
        """
        self._records = records
        self._clock = clock
        self._entries_max = entries_max
        self._used: OrderedDict[str, float] = OrderedDict()

    def note(self, scope: str, action_id: Digest) -> None:
        """Notes that a result was found by a look-up."""
        key = action_key(scope, action_id)
        self._used[key] = self._clock()
        self._used.move_to_end(key)
        if len(self._used) > self._entries_max:
            self._used.popitem(last=False)

    def last(self, key: str, written_s: float) -> float:
        """Returns when a result was last used.

        Args:
            key: of its record.
            written_s: when that was written.
        """
        return max(written_s, self._used.get(key, 0.0))

    def forget(self, key: str) -> None:
        """Drops the entry of a result that was deleted."""
        self._used.pop(key, None)

    async def load(self) -> None:
        """Reads the entries; a damaged record is passed over."""
        record = await self._records.read(USED_RESULTS)
        if record is None:
            return
        try:
            found = decode_record(_decoder, USED_RESULTS, record)
        except DamagedRecordError as e:
            log.warning("%s; results count as unused since they were written", e)
            return
        newer = self._used
        self._used = OrderedDict(sorted(found.items(), key=lambda entry: entry[1]))
        for key, used_s in newer.items():
            self._used[key] = used_s
            self._used.move_to_end(key)

    async def save(self) -> None:
        """Writes the entries.

        Raises:
            StoreUnavailableError, StoreFullError: the next call writes them.
        """
        await overwrite(self._records, USED_RESULTS, msgspec.json.encode(self._used))
