"""Administration of the master keys: counts what they seal, seals anew, and retires a key.

Called by the API. ``fmesh keys`` or an administrator changes the file or Secret with the keys.
"""

from collections import Counter
from collections.abc import AsyncIterator

from flowmesh_api.v1.keys import MasterKeys, ResealReport, RetireReport
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.records.current_keys import CurrentKeys, retire_key
from flowmesh_control.records.keys import SEALED_PREFIXES
from flowmesh_core.errors import ConditionFailedError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import SealError, Seals, UnknownKeyError, seal_key_id
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.ports import RecordStore

_NEWEST, _RESEALED, _LEFT = "newest", "resealed", "left"


class KeyAdmin:
    """Reads and rewrites sealed records as they are stored."""

    def __init__(self, records: RecordStore, ring: KeyRing, current: CurrentKeys) -> None:
        """Keeps the arguments.

        Args:
            records: of the store, without the check of seals.
            ring: the master keys of this control plane.
            current: as ``keys/current`` was at its start.
        """
        self._records = records
        self._ring = ring
        self._seals = Seals(ring)
        self._newest = ring.secrets[0][0]
        self._retired = current.retired

    async def keys(self) -> MasterKeys:
        """Returns the keys and how many records each seals, by reading all records."""
        counts: Counter[str] = Counter()
        async for _, record in in_batches(self._all_keys(), self._records.read):
            if record is not None:
                counts[seal_key_id(record.data) or ""] += 1
        unsealed = counts.pop("", 0)
        ids = tuple(key_id for key_id, _ in self._ring.secrets)
        return MasterKeys(self._newest, ids, self._retired, dict(counts), unsealed)

    async def reseal(self) -> ResealReport:
        """Seals all records that other keys of the ring seal with the newest one.

        Writers are not disturbed: a record that changes meanwhile has the newest seal.

        Raises:
            StoreUnavailableError, StoreFullError: records that were sealed stay so; try again.
        """
        counts: Counter[str] = Counter()
        async for _, outcome in in_batches(self._all_keys(), self._reseal):
            counts[outcome] += 1
        return ResealReport(self._newest, counts[_RESEALED], counts[_LEFT])

    async def retire(self, key_id: str, *, lose_results: bool) -> RetireReport:
        """Marks a key as retired.

        Raises:
            NotFoundError: there is no such key.
            ConflictError: it is the newest, or records are sealed with it.
        """
        if all(key_id != known for known, _ in self._ring.secrets):
            raise NotFoundError(f"there is no master key {key_id!r}", where="keys")
        if key_id == self._newest:
            raise ConflictError(
                f"master key {key_id} is the newest and seals every new record",
                where="keys",
                remedy="add a newer one first: fmesh keys rotate, and restart the control plane",
            )
        count = (await self.keys()).records.get(key_id, 0)
        if count and not lose_results:
            raise ConflictError(
                f"{count} records are sealed with master key {key_id}",
                where="keys",
                remedy="run `fmesh keys reseal` first, or lose them with --lose-results",
            )
        await retire_key(self._records, self._ring, key_id)
        self._retired = tuple(sorted({*self._retired, key_id}))
        return RetireReport(key_id, count)

    async def _reseal(self, key: str) -> str:
        record = await self._records.read(key)
        if record is None or seal_key_id(record.data) == self._newest:
            return _NEWEST
        try:
            content = self._seals.open(key, record.data)
            sealed = self._seals.seal(key, content)
            await self._records.write(key, sealed, if_match=record.etag)
        except (SealError, UnknownKeyError, ConditionFailedError):
            return _LEFT
        return _RESEALED

    async def _all_keys(self) -> AsyncIterator[str]:
        for prefix in SEALED_PREFIXES:
            async for key in self._records.keys(prefix):
                yield key
