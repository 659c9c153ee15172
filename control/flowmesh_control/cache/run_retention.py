"""Deletes the records of runs: of those that ended long ago, and of those that users deleted.

Called by a collection, and by the deletion of a run.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, field

from flowmesh_control.records.deleted_runs import DeletedRuns
from flowmesh_control.records.keys import (
    ACCOUNTS,
    DELETED,
    ENDED,
    LEARNED,
    LINEAGE,
    RUNS,
    TAKEN,
    final_key,
    spec_key,
)
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.collection.sweep import ANY_AGE, StoredRecord, SweepableRecords

_LATEST = 2
"""How many records of a kind that each epoch writes stay: a leader reads the newest that it can."""


@dataclass(slots=True)
class _StoredRun:
    """The records of one run, in the order of their keys."""

    uid: str
    records: list[StoredRecord] = field(default_factory=list)

    def is_expired(self, ttl_s: float) -> bool:
        """Whether it ended, or was never accepted, and no record is younger than this."""
        keys = {record.key for record in self.records}
        over = final_key(self.uid) in keys or spec_key(self.uid) not in keys
        return over and all(record.age_s >= ttl_s for record in self.records)

    def in_order_of_deletion(self) -> list[str]:
        """Returns the keys: the spec first, since a spec without an end is an unfinished run."""
        spec = spec_key(self.uid)
        return sorted((r.key for r in self.records), key=lambda key: (key != spec, key))


class RunRetention:
    """Deletes runs whose time is over, with ledger, logs and lineage."""

    def __init__(
        self,
        sweepable: SweepableRecords,
        *,
        ttl_s: float,
        grace_s: float,
        lineage_ttl_s: Callable[[], float],
        needed: Callable[[], Awaitable[Container[str]]],
        deleted: DeletedRuns,
        forget: Callable[[str], None],
    ) -> None:
        """Keeps the arguments.

        Args:
            sweepable: the records of the store, to list and delete.
            ttl_s: how long the records of a run stay after its end.
            grace_s: the age from which the accounts and cost models of earlier epochs are deleted.
            lineage_ttl_s: returns the age from which lineage is deleted, at least as long as a
                result can be used: a revocation finds what was made from content by its lineage.
            needed: returns the uids of runs that stay: live ones, and those of batches.
            deleted: the runs that users deleted: the rest of their records goes at once.
            forget: called with the uid of a run that was deleted.
        """
        self._sweepable = sweepable
        self._ttl_s = ttl_s
        self._grace_s = grace_s
        self._lineage_ttl_s = lineage_ttl_s
        self._needed = needed
        self._deleted = deleted
        self._forget = forget

    async def expire(self, *, dry_run: bool) -> int:
        """Deletes the runs whose time is over; returns how many.

        Raises:
            StoreError: what was deleted stays deleted; the next call deletes the rest.
        """
        needed = await self._needed()
        expired = [
            run
            async for run in self._runs()
            if run.uid in self._deleted or (run.is_expired(self._ttl_s) and run.uid not in needed)
        ]
        if dry_run:
            return len(expired)
        for run in expired:
            await self._delete_run(run, ANY_AGE if run.uid in self._deleted else self._ttl_s)
        # What says that a run was deleted is younger than its lineage, which it hides.
        for prefix in (LINEAGE, DELETED):
            await self._delete_old(prefix, max(self._ttl_s, self._lineage_ttl_s()))
        for prefix in (ENDED, TAKEN):
            await self._delete_old(prefix, self._ttl_s, but=_LATEST)
        for prefix in (ACCOUNTS, LEARNED):
            await self._delete_old(prefix, self._grace_s, but=_LATEST)
        return len(expired)

    async def delete(self, uid: str) -> None:
        """Deletes the records of a run that was deleted, except its lineage, which is hidden.

        Raises:
            StoreError: what was deleted stays deleted; the next collection deletes the rest.
        """
        async for run in self._runs(f"{RUNS}{uid}/"):
            await self._delete_run(run, ANY_AGE)

    async def _delete_run(self, run: _StoredRun, older_than_s: float) -> None:
        spec, *others = run.in_order_of_deletion()
        await self._delete([spec], older_than_s)
        await self._delete(others, older_than_s)
        self._forget(run.uid)

    async def _runs(self, prefix: str = RUNS) -> AsyncIterator[_StoredRun]:
        """Yields the runs of the store from one listing, in which a run's records are together."""
        run: _StoredRun | None = None
        async for record in self._sweepable.aged(prefix):
            uid = record.key.removeprefix(RUNS).partition("/")[0]
            if run is None or run.uid != uid:
                if run is not None:
                    yield run
                run = _StoredRun(uid)
            run.records.append(record)
        if run is not None:
            yield run

    async def _delete_old(self, prefix: str, ttl_s: float, *, but: int = 0) -> None:
        """Deletes the records below a prefix that are as old, except the last ones."""
        found = [record async for record in self._sweepable.aged(prefix)]
        old = [r.key for r in found[: len(found) - but] if r.age_s >= ttl_s]
        await self._delete(old, ttl_s)
        if prefix == DELETED:
            self._deleted.forget(key.removeprefix(DELETED) for key in old)

    async def _delete(self, keys: Iterable[str], older_than_s: float) -> None:
        async def delete(key: str) -> bool:
            return await self._sweepable.delete(key, older_than_s=older_than_s)

        async for _ in in_batches(each_of(keys), delete):
            pass
