"""Withheld results as sealed records ``withheld/<scope>/<action>``, and in memory.

They are read once an epoch, before anything is looked up; afterwards the memory of
:class:`WithheldResults` answers every look-up. A record without a valid seal withholds nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from flowmesh_api.v1.withheld import WithheldResult
from flowmesh_control.records.keys import WITHHELD, withheld_key
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.keys import is_digest
from flowmesh_store.store import Store
from flowmesh_store.withheld_results import Place, WithheldResults

_decoder = msgspec.json.Decoder(WithheldResult)


class WithheldRecords:
    """Writes and reads the records.

    Attributes:
        hidden: the same in memory, for the action cache.
    """

    def __init__(self, store: Store) -> None:
        """Starts empty; :meth:`load` reads the records of the store, which are sealed."""
        self._records = store.records
        self._sweepable = store.sweepable_records
        self._lock = asyncio.Lock()
        self.hidden = WithheldResults()

    async def load(self) -> None:
        """Reads every record."""
        async for result in self.all():
            self._hide(result)

    async def all(self) -> AsyncIterator[WithheldResult]:
        """Yields the withheld results in order of scope and action."""
        places = known_keys(self._records, WITHHELD, _place)
        keys = (key async for key, _ in places)
        async for key, record in in_batches(keys, self._records.read):
            if record is not None and not record.is_foreign:
                yield decode_record(_decoder, key, record)

    async def add(self, results: Iterable[WithheldResult]) -> None:
        """Withholds results, each from the moment on in which its record is written.

        Raises:
            StoreUnavailableError, StoreFullError: try again; some may be withheld already.
        """
        async with self._lock:
            async for _ in in_batches(each_of(results), self._write):
                pass

    async def remove(self, places: Iterable[Place]) -> int:
        """Ends the withholding of results; returns how many were withheld."""
        async with self._lock:
            done = in_batches(each_of(places), self._delete)
            return sum([deleted async for _, deleted in done])

    async def expire(self, now_s: float) -> None:
        """Deletes the records of results that have expired and may have been collected."""
        gone = [p async for p in self._expired(now_s)]
        await self.remove(gone)

    async def _expired(self, now_s: float) -> AsyncIterator[Place]:
        async for result in self.all():
            if result.expires_s and result.expires_s <= now_s:
                yield (result.scope, result.action_id)

    async def _write(self, result: WithheldResult) -> None:
        key = withheld_key(result.scope, result.action_id)
        await overwrite(self._records, key, msgspec.json.encode(result))
        self._hide(result)

    async def _delete(self, place: Place) -> bool:
        deleted = await self._sweepable.delete(withheld_key(*place), older_than_s=0.0)
        self.hidden.remove(*place)
        return deleted

    def _hide(self, result: WithheldResult) -> None:
        version = (result.generation, result.created_s)
        self.hidden.add(result.scope, result.action_id, version)


def _place(key: str) -> Place | None:
    scope, _, action_id = key.removeprefix(WITHHELD).partition("/")
    return (scope, action_id) if scope and is_digest(action_id) else None
