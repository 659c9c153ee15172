"""Administration of the cache: statistics, collection and purge; called by the API."""

from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from itertools import chain
from math import inf

import msgspec

from flowmesh_api.v1.fabric import CacheStats, CollectionReport, ScopeStats
from flowmesh_control.cache.recency import Recency
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.cache.roots import live_artifacts
from flowmesh_control.cache.stored_roots import (
    UnreadableRun,
    artifacts_of_stored_run,
    unreadable_run,
)
from flowmesh_control.errors import NewerPlanError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.queries.status_document import document_artifact
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import final_key
from flowmesh_control.records.known_keys import run_uids
from flowmesh_control.records.run_records import FinalRecord, final_decoder
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_core.decoding import decode
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.revocation import is_hidden
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import namespace_scope
from flowmesh_core.status.overflow import overflows
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_store.collection.collector import Collector
from flowmesh_store.collection.mark import LiveBlobs, Marking
from flowmesh_store.collection.sweep import StoredRecord
from flowmesh_store.keys import ACTIONS
from flowmesh_store.store import Store

ScopedArtifact = tuple[tuple[str, ...], Artifact]
"""An artifact with the scopes to keep it in."""


ServedModels = Callable[[], Iterable[tuple[str, tuple[str, ...], Artifact]]]
"""Returns the models of services: namespace, scopes to keep it in, artifact."""


async def _none_uploaded() -> Sequence[ScopedArtifact]:
    return ()


class CacheAdmin:
    """Counts, collects and purges cached results."""

    def __init__(
        self,
        *,
        store: Store,
        state: State,
        archive: Archive,
        result_ttl_s: float,
        withheld: WithheldRecords,
        clock: Clock,
        collected: Callable[[], None],
        uploaded: Callable[[], Awaitable[Sequence[ScopedArtifact]]] = _none_uploaded,
        served: ServedModels = tuple,
        grace_s: float = DEFAULT_GRACE_S,
        uses: ResultUses | None = None,
        shortest_ttl_s: Callable[[], float] = lambda: inf,
    ) -> None:
        """Keeps its parts.

        Args:
            store: with the cache.
            state: the machine's.
            archive: of the runs that have ended.
            result_ttl_s: the age at which results expire.
            withheld: the records of withheld results, which expire with them.
            clock: Unix time in seconds.
            collected: called after blobs were deleted.
            uploaded: returns content that stays until its user deletes it.
            served: returns the models of services, which stay for as long as these.
            grace_s: nothing younger is deleted; the store was opened with it.
            uses: when results were last used; None where nothing is evicted.
            shortest_ttl_s: returns the shortest lifetime that a cache policy gives results.
        """
        self._store = store
        self._state = state
        self._archive = archive
        self._result_ttl_s = result_ttl_s
        self._withheld = withheld
        self._clock = clock
        self._collected = collected
        self._uploaded = uploaded
        self._served = served
        self._grace_s = grace_s
        self._uses = uses
        self._shortest_ttl_s = shortest_ttl_s
        self._horizon_s = 0.0

    async def stats(self) -> CacheStats:
        """Counts blobs, and results by scope, by listing the whole store."""
        blobs, size = 0, 0
        async for blob in self._store.sweepable_blobs.blobs():
            blobs += 1
            size += blob.size_bytes
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        async for record in self._store.sweepable_records.aged(f"{ACTIONS}/"):
            scope = record.key.split("/")[1]
            counts[scope] += 1
            sizes[scope] += record.size_bytes
        scopes = tuple(ScopeStats(s, counts[s], sizes[s]) for s in sorted(counts))
        return CacheStats(blobs, size, scopes)

    async def collect(self, *, dry_run: bool) -> CollectionReport:
        """Deletes expired results and unreferenced blobs.

        What a run may need whose records cannot be read stays, and the report names the run.

        Raises:
            StoreError: something could not be read, so nothing was deleted.
        """
        collector = Collector(
            self._store.sweepable_blobs,
            self._store.sweepable_records,
            self._store.records,
            grace_s=self._grace_s,
            result_ttl_s=min(self._result_ttl_s, self._shortest_ttl_s()),
            clock=self._clock,
        )
        unreadable: list[UnreadableRun] = []
        report = await collector.collect(
            lambda: self.live(unreadable=unreadable),
            held=lambda scope: any(run.may_need(scope) for run in unreadable),
            dry_run=dry_run,
        )
        report = msgspec.structs.replace(report, unreadable_runs=tuple(map(str, unreadable)))
        if not dry_run:
            self.blobs_deleted()
            await self._withheld.expire(self._clock())
        return report

    async def evict(self, *, used_bytes: int, bytes_max: int, dry_run: bool) -> int:
        """Deletes the results that were used least recently, until the others fit.

        The outputs of runs that ended before stay no longer either. The next collection deletes
        the blobs. What live runs and services need stays, and so does what is younger than the
        grace.

        Args:
            used_bytes: blobs and results that the last collection found in use.
            bytes_max: what may be.
            dry_run: only count.

        Returns:
            How many results were deleted.
        """
        recency, results = Recency(), dict[str, float]()
        async for stored, used_s, artifacts in self._used_results():
            results[stored.key] = used_s
            recency.add(stored.key, stored.size_bytes, used_s)
            for artifact in artifacts:
                recency.add(artifact.blob, artifact.size_bytes, used_s)
        async for final in self._ended_runs(self._outputs_since_s()):
            for artifact in _artifacts_of(final):
                recency.add(artifact.blob, artifact.size_bytes, final.status.ended_s)
        for _, artifact in chain(live_artifacts(self._state), await self._uploaded()):
            recency.add(artifact.blob, artifact.size_bytes, inf)
        for _, _, artifact in self._served():
            recency.add(artifact.blob, artifact.size_bytes, inf)
        horizon_s = recency.horizon_s(used_bytes=used_bytes, bytes_max=bytes_max)
        horizon_s = min(horizon_s, self._clock() - self._grace_s)
        unused = [key for key, used_s in results.items() if used_s <= horizon_s]
        if dry_run:
            return len(unused)
        self._horizon_s = max(self._horizon_s, horizon_s)
        deleted = in_batches(each_of(unused), self._delete_unused)
        return sum([was_deleted async for _, was_deleted in deleted])

    async def _delete_unused(self, key: str) -> bool:
        if self._uses is not None:
            self._uses.forget(key)
        return await self._store.sweepable_records.delete(key, older_than_s=self._grace_s)

    async def _used_results(
        self,
    ) -> AsyncIterator[tuple[StoredRecord, float, Sequence[Artifact]]]:
        """Yields each result's record, its last use and its outputs."""
        records, now_s = self._store.records, self._clock()
        listed = self._store.sweepable_records.aged(f"{ACTIONS}/")
        async for stored, record in in_batches(listed, lambda found: records.read(found.key)):
            result = decoded(record)
            if result is not None:
                used_s = now_s - stored.age_s
                if self._uses is not None:
                    used_s = self._uses.last(stored.key, used_s)
                yield stored, used_s, tuple(result.outputs.values())

    def blobs_deleted(self) -> None:
        """Has what namespaces store counted again."""
        self._collected()

    async def purge(self, scope: str, *, engine: str = "") -> int:
        """Deletes a scope's published results; the next collection deletes their blobs.

        Args:
            scope: e.g. ``ns-team-a``.
            engine: only results of this engine; all where empty.

        Returns:
            How many were deleted.
        """
        records = self._store.sweepable_records

        async def delete(record: StoredRecord) -> bool:
            if engine:
                result = decoded(await self._store.records.read(record.key))
                if result is not None and result.engine != engine:
                    return False
            return await records.delete(record.key, older_than_s=0.0)

        found = in_batches(records.aged(f"{ACTIONS}/{scope}/"), delete)
        return sum([deleted async for _, deleted in found])

    async def live(
        self,
        revoked: Sequence[ContentRevoked] = (),
        left_out: Container[str] = frozenset(),
        *,
        unreadable: list[UnreadableRun] | None = None,
    ) -> LiveBlobs:
        """Marks from the roots: live runs, outputs of ended runs, results, models of services.

        Args:
            revoked: revocations besides those that the machine knows.
            left_out: keys of results that do not count.
            unreadable: gets the runs whose records cannot be read.

        Raises:
            DamagedRecordError, NewerPlanError: there is such a run, and no list for it.
        """
        marking = Marking()
        for namespace, scopes, artifact in self._served():
            # What was revoked before is served no longer; see ``ServiceRegistry``.
            if not is_hidden(revoked, namespace, 0.0, artifact.digest):
                marking.add(scopes, artifact)
        revoked = (*self._state.revocations, *revoked)
        for scopes, artifact in live_artifacts(self._state, revoked):
            marking.add(scopes, artifact)
        for scopes, artifact in await self._uploaded():
            marking.add(scopes, artifact)
        await self._add_ended_runs(marking, revoked, unreadable)
        await marking.add_results(self._store.records, left_out=left_out)
        return await marking.complete(self._store)

    async def _not_live(self) -> AsyncIterator[str]:
        for uid in await run_uids(self._store.records):
            if uid not in self._state.runs:
                yield uid

    def _outputs_since_s(self) -> float:
        """Returns the time from which on the outputs of ended runs stay."""
        return max(self._clock() - self._result_ttl_s, self._horizon_s)

    async def _ended_runs(self, since_s: float) -> AsyncIterator[FinalRecord]:
        """Yields the ends of runs that are not live and ended since then."""
        records = self._store.records
        read = in_batches(self._not_live(), lambda uid: records.read(final_key(uid)))
        async for _, record in read:
            final = None if record is None else _final_or_none(record.data)
            if final is not None and final.status.ended_s >= since_s:
                yield final

    async def _add_ended_runs(
        self,
        marking: Marking,
        revoked: Sequence[ContentRevoked],
        unreadable: list[UnreadableRun] | None,
    ) -> None:
        """Adds the artifacts of runs that are not live and must not be deleted.

        The outputs of an ended run stay for as long as results do; what an unfinished run needs
        stays until it ends.
        """
        since_s = self._outputs_since_s()
        records = self._store.records
        async for uid, record in in_batches(
            self._not_live(), lambda uid: records.read(final_key(uid))
        ):
            final = None if record is None else _final_or_none(record.data)
            if final is None:
                try:
                    needed = await artifacts_of_stored_run(records, uid, revoked)
                except (DamagedRecordError, NewerPlanError) as e:
                    if unreadable is None:
                        raise
                    unreadable.append(await unreadable_run(records, uid, e))
                    continue
                for scopes, artifact in needed:
                    marking.add(scopes, artifact)
            elif final.status.ended_s >= since_s:
                status = final.status
                for artifact in _artifacts_of(final):
                    if not is_hidden(revoked, status.namespace, status.created_s, artifact.digest):
                        marking.add(final.read_scopes, artifact)
                if overflows(final.status):
                    own = (namespace_scope(final.status.namespace),)
                    marking.add(own, document_artifact(final.status))


def _artifacts_of(final: FinalRecord) -> Iterator[Artifact]:
    """Yields the outputs of a run that has ended, and what was published of those of others."""
    yield from chain.from_iterable(final.outputs.values())
    for part in chain.from_iterable(final.partial.values()):
        yield part.artifact


def _final_or_none(data: bytes) -> FinalRecord | None:
    """Decodes how a run ended; None where the record is damaged."""
    try:
        return decode(final_decoder, data)
    except msgspec.DecodeError:
        return None
