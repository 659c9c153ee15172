"""Collection: marks what live runs, results and workers need, and sweeps the rest.

Only the leader collects, one collection at a time. Nothing younger than the grace is deleted, and a
put renews a blob older than half of it, so the blobs of a result that is about to be published are
safe. If a needed blob is missing all the same, the action that produced it is executed again.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from flowmesh_api.v1.fabric import CollectionReport
from flowmesh_store.action_cache import RESULT_TTL_S, decoded
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_store.collection.mark import LiveBlobs
from flowmesh_store.collection.sweep import StoredRecord, Sweepable, SweepableRecords
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import RecordStore, StoredBlob

Live = Callable[[], Awaitable[LiveBlobs]]


class Collector:
    """Mark and sweep over one store."""

    def __init__(
        self,
        blobs: Sweepable,
        sweepable_records: SweepableRecords,
        records: RecordStore,
        *,
        grace_s: float = DEFAULT_GRACE_S,
        result_ttl_s: float = RESULT_TTL_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keeps the parts of a store.

        Args:
            blobs: ``store.sweepable_blobs``.
            sweepable_records: ``store.sweepable_records``.
            records: ``store.records``.
            grace_s: the grace with which the store was opened; nothing younger is deleted.
            result_ttl_s: the age from which results are read; those that have expired or are
                unreadable are deleted.
            clock: Unix time in seconds.
        """
        self._blobs = blobs
        self._sweepable_records = sweepable_records
        self._clock = clock
        self._records = records
        self._grace_s = grace_s
        self._result_ttl_s = result_ttl_s

    async def expire_results(self, *, dry_run: bool) -> int:
        """Deletes expired action results; returns how many.

        Must be called before the roots are marked.
        """
        totals: Counter[str] = Counter()
        await self._expire_results(totals, dry_run)
        return totals["expired_results"]

    async def _expire_results(self, totals: Counter[str], dry_run: bool) -> None:
        """Counts the expired results, and the bytes of the others."""
        old = self._old_results(totals)
        async for record, expired in in_batches(old, partial(self._expire, dry_run)):
            if expired:
                totals["expired_results"] += 1
                totals["result_bytes"] -= record.size_bytes

    async def _old_results(self, totals: Counter[str]) -> AsyncIterator[StoredRecord]:
        async for record in self._sweepable_records.aged(f"{ACTIONS}/"):
            totals["result_bytes"] += record.size_bytes
            if record.age_s >= self._result_ttl_s:
                yield record

    async def _expire(self, dry_run: bool, record: StoredRecord) -> bool:
        """Deletes an expired result; returns whether it did, or would without ``dry_run``."""
        key = record.key
        result = decoded(await self._records.read(key))
        if result is not None and not 0.0 < result.expires_s <= self._clock():
            return False
        if dry_run:
            return True
        return await self._sweepable_records.delete(key, older_than_s=self._result_ttl_s)

    async def collect(
        self, live: Live, *, dry_run: bool, held: Callable[[str], bool] = lambda _: False
    ) -> CollectionReport:
        """Expires results, marks what is live, then sweeps.

        Args:
            live: returns the needed digests by scope: roots and all that they consist of (see
                :func:`mark`). It is called after results have expired.
            dry_run: only report what would be deleted.
            held: asked after ``live``: whether all content of a scope stays.

        Raises:
            StoreUnavailableError, StoreError: the store failed; what was deleted stays deleted.
        """
        totals: Counter[str] = Counter()
        await self._expire_results(totals, dry_run)
        needed = await live()

        async def delete(blob: StoredBlob) -> bool:
            return dry_run or await self._blobs.delete(
                blob.scope, blob.digest, older_than_s=self._grace_s
            )

        async for blob, deleted in in_batches(self._unneeded(needed, held, totals), delete):
            if deleted:
                totals["deleted"] += 1
                totals["deleted_bytes"] += blob.size_bytes
        unfinished = (
            0 if dry_run else await self._blobs.discard_unfinished(older_than_s=self._grace_s)
        )
        return CollectionReport(dry_run, unfinished=unfinished, unreadable_runs=(), **totals)

    async def _unneeded(
        self, needed: LiveBlobs, held: Callable[[str], bool], totals: Counter[str]
    ) -> AsyncIterator[StoredBlob]:
        """Yields the blobs to delete, and counts all blobs."""
        async for blob in self._blobs.blobs():
            totals["blobs"] += 1
            totals["size_bytes"] += blob.size_bytes
            if blob.digest in needed.get(blob.scope, ()) or held(blob.scope):
                totals["live"] += 1
                totals["live_bytes"] += blob.size_bytes
            elif blob.age_s < self._grace_s:
                totals["young"] += 1
            else:
                yield blob
