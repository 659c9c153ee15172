"""Deletes the segments of the request log that are old enough; called by a collection."""

from flowmesh_control.records.keys import REQUEST_LOG
from flowmesh_control.request_log.beginning import write_beginning
from flowmesh_control.request_log.segments import Position, link_to, parse_log_key
from flowmesh_control.request_log.signatures import Signer
from flowmesh_core.errors import ConditionFailedError
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.collection.sweep import StoredRecord, SweepableRecords
from flowmesh_store.ports import RecordStore


class LogRetention:
    """Deletes expired segments, the oldest first."""

    def __init__(
        self,
        records: RecordStore,
        sweepable: SweepableRecords,
        signer: Signer,
        *,
        ttl_s: float,
    ) -> None:
        """Keeps the arguments.

        Args:
            records: of the store, without the check of seals.
            sweepable: the same records, to list and delete.
            signer: of this control plane.
            ttl_s: the age from which segments are deleted.
        """
        self._records = records
        self._sweepable = sweepable
        self._signer = signer
        self._ttl_s = ttl_s

    async def expire(self, *, dry_run: bool) -> int:
        """Deletes expired segments; returns how many.

        Those from the first that has not expired stay, and the newest stays in any case: the next
        one is linked to it.

        Raises:
            StoreError: what was deleted stays deleted.
        """
        found = await self._segments()
        young = (n for n, (_, record) in enumerate(found) if record.age_s < self._ttl_s)
        count = min(next(young, len(found)), len(found) - 1)
        if count <= 0:
            return 0
        if not dry_run:
            await self._begin_with(found[count][1].key)
            await self._delete([record for _, record in found[:count]])
        return count

    async def _segments(self) -> list[tuple[Position, StoredRecord]]:
        listed = self._sweepable.aged(REQUEST_LOG)
        found = [(parse_log_key(record.key), record) async for record in listed]
        known = [(position, record) for position, record in found if position is not None]
        return sorted(known, key=lambda pair: pair[0])

    async def _begin_with(self, key: str) -> None:
        record = await self._records.read(key)
        if record is None:
            raise ConditionFailedError("it has just been deleted", where=key)
        await write_beginning(self._records, self._signer, link_to(key, record.data))

    async def _delete(self, expired: list[StoredRecord]) -> None:
        async def delete(record: StoredRecord) -> bool:
            return await self._sweepable.delete(record.key, older_than_s=self._ttl_s)

        async for _ in in_batches(each_of(expired), delete):
            pass
