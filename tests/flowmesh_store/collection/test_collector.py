"""Collection: what is kept, what goes, and what a dry run says."""

import asyncio
from pathlib import Path

import pytest
from backends import Backend
from tests.blob_views import SCOPE, blobs_of

from flowmesh_api.v1.fabric import CollectionReport
from flowmesh_core.protocol.results import ActionResult, Artifact, encode_result
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import RESULT_TTL_S, ActionCache
from flowmesh_store.collection.collector import Collector
from flowmesh_store.collection.mark import LiveBlobs, Marking
from flowmesh_store.hashing import digest_of
from flowmesh_store.keys import action_key
from flowmesh_store.memory import MemoryContent, MemoryRecords
from flowmesh_store.ports import Record
from flowmesh_store.store import open_store
from flowmesh_store.tree import store_tree

GRACE_S = 3600.0


@pytest.fixture
def collector(backend: Backend) -> Collector:
    store = backend.store
    return Collector(store.sweepable_blobs, store.sweepable_records, store.records, grace_s=GRACE_S)


async def put(backend: Backend, data: bytes, *, aged_s: float = 2 * GRACE_S) -> Digest:
    await blobs_of(backend.store).put(digest_of(data), data)
    backend.age(digest_of(data), aged_s)
    return digest_of(data)


async def collect(
    collector: Collector, live: set[Digest], *, dry_run: bool = False
) -> CollectionReport:
    async def gather() -> LiveBlobs:
        return {SCOPE: live}

    return await collector.collect(gather, dry_run=dry_run)


async def test_only_unneeded_blobs_older_than_the_grace_period_are_deleted(
    backend: Backend, collector: Collector
) -> None:
    needed, garbage = await put(backend, b"needed"), await put(backend, b"garbage")
    young = await put(backend, b"young", aged_s=GRACE_S / 2)
    done = await collect(collector, {needed})
    assert await blobs_of(backend.store).missing([needed, garbage, young]) == {garbage}
    assert done == CollectionReport(
        False, blobs=3, size_bytes=18, live=1, young=1, deleted=1, deleted_bytes=7,
        live_bytes=6, unfinished=done.unfinished,
    )  # fmt: skip


async def test_a_dry_run_reports_the_same_and_deletes_nothing(
    backend: Backend, collector: Collector
) -> None:
    garbage = [await put(backend, b"garbage %d" % i) for i in range(3)]
    said = await collect(collector, set(), dry_run=True)
    assert await blobs_of(backend.store).missing(garbage) == set()
    done = await collect(collector, set())
    assert (said.deleted, said.deleted_bytes) == (done.deleted, done.deleted_bytes) == (3, 27)
    assert await blobs_of(backend.store).missing(garbage) == set(garbage)


async def test_a_put_during_the_sweep_saves_a_blob_that_was_seen_as_garbage(
    backend: Backend, collector: Collector
) -> None:
    digest = await put(backend, b"made again", aged_s=13 * GRACE_S)

    async def put_while_marking() -> LiveBlobs:
        await blobs_of(backend.store).put(digest, b"made again")
        return {}

    done = await collector.collect(put_while_marking, dry_run=False)
    assert (done.deleted, done.young) == (0, 1)
    assert await blobs_of(backend.store).missing([digest]) == set()


async def test_a_model_is_retained_with_all_its_files(
    backend: Backend, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    for name in ("weights", "config"):
        (tmp_path / "model" / name).write_bytes(name.encode())
    tree = await store_tree(blobs_of(backend.store), tmp_path / "model")
    everything = {tree.digest, *(f.digest for f in tree.files)}
    for digest in everything:
        backend.age(digest, 2 * GRACE_S)
    marking = Marking()
    marking.add((SCOPE,), Artifact("model", digest_of(b"identity"), tree.digest))
    live = await marking.complete(backend.store)
    await collect(collector, set(live[SCOPE]))
    assert await blobs_of(backend.store).missing(everything) == set()
    await collect(collector, set())
    assert await blobs_of(backend.store).missing(everything) == everything


async def test_results_keep_their_outputs_until_they_expire(
    backend: Backend, collector: Collector
) -> None:
    cache = ActionCache(backend.store.records)
    output = await put(backend, b"output")
    kept, expired = digest_of(b"kept"), digest_of(b"expired")
    for action, created_s, expires_s in ((kept, 1.0, 1e12), (expired, 1.0, 2.0)):
        await cache.publish(SCOPE, result(action, output, created_s, expires_s))
        backend.age(action_key(SCOPE, action), RESULT_TTL_S + 1)
    marking = Marking()
    await marking.add_results(backend.store.records)
    live = set((await marking.complete(backend.store))[SCOPE])
    assert output in live
    said = await collect(collector, live, dry_run=True)
    assert said.expired_results == 1
    done = await collect(collector, live)
    assert done.expired_results == 1
    assert [k async for k in backend.store.records.keys("actions/")] == [action_key(SCOPE, kept)]
    assert await blobs_of(backend.store).missing([output]) == set()


async def test_a_lost_manifest_retains_only_its_own_digest(backend: Backend) -> None:
    lost, marking = digest_of(b"lost"), Marking()
    marking.add((SCOPE,), Artifact("model", digest_of(b"identity"), lost))
    assert await marking.complete(backend.store) == {SCOPE: {lost}}


async def test_a_blob_needed_by_one_scope_does_not_retain_equal_bytes_in_another(
    backend: Backend, collector: Collector
) -> None:
    digest = await put(backend, b"of two")
    other = backend.store.view(write="ns-other", read=("ns-other",))
    await other.put(digest, b"of two")
    await backend.store.view(write="ns-third", read=("ns-other",)).copy([digest])
    listed = {(b.scope, b.digest) async for b in backend.store.sweepable_blobs.blobs()}
    assert listed == {(SCOPE, digest), ("ns-other", digest), ("ns-third", digest)}

    async def live() -> LiveBlobs:
        return {"ns-other": {digest}}

    await collector.collect(live, dry_run=False)
    assert await blobs_of(backend.store).missing([digest]) == {digest}
    assert await other.get(digest) == b"of two"


async def marked(records: MemoryRecords) -> set[Digest]:
    marking = Marking()
    await marking.add_results(records)
    return set((await marking.complete(open_store("memory:")))[SCOPE])


def result(action: Digest, output: Digest, created_s: float, expires_s: float) -> ActionResult:
    return ActionResult(
        action_id=action, generation=0, engine="test.noop", contract=1, implementation=1, inputs={},
        outputs={"out": Artifact("blob", output, output)},
        created_s=created_s, expires_s=expires_s,
    )  # fmt: skip


class Far(MemoryRecords):
    """A store whose reads and deletions answer nobody before so many have asked."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self._left = together
        self._all = asyncio.Event()

    async def _wait(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 20)

    async def read(self, key: str) -> Record | None:
        await self._wait()
        return await super().read(key)


async def test_results_are_read_side_by_side(tmp_path: Path) -> None:
    digests = [digest_of(b"%d" % n) for n in range(100)]

    async def filled(records: Far) -> Far:
        for n, digest in enumerate(digests):
            kept = result(digest, digest, created_s=0.5, expires_s=1.0 if n % 2 else 0.0)
            await records.write(action_key(SCOPE, digest), encode_result(kept))
        return records

    records = await filled(Far(together=32))
    assert await marked(records) == set(digests)
    records = await filled(Far(together=32))
    collector = Collector(MemoryContent(spool_dir=tmp_path), records, records, result_ttl_s=0.0)
    assert await collector.expire_results(dry_run=True) == 50
    assert await collector.expire_results(dry_run=False) == 50
    assert await marked(records) == set(digests[::2])


async def test_a_stray_object_among_the_blobs_is_skipped_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    digest = digest_of(b"ours")
    await blobs_of(store).put(digest, b"ours")
    (tmp_path / "cas" / SCOPE / digest[:2] / "notes.txt").write_text("not ours")
    assert [blob.digest async for blob in store.sweepable_blobs.blobs()] == [digest]
    assert [r.levelname for r in caplog.records if "notes.txt" in r.message] == ["WARNING"]
