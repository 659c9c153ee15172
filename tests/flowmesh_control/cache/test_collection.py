"""What a collection takes, what it leaves, and what it says of it."""

import asyncio
import contextlib
from dataclasses import replace

import msgspec
import pytest
from tests.blob_views import SCOPE
from tests.flowmesh_control.cache.aging_store import DAY_S, GRACE_S, AgingStore
from tests.flowmesh_control.records.test_ended_index import ends, taken_over

from flowmesh_control.cache.recency import FILL
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.records.accounts import AccountsRecord, AccountStore
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.keys import learned_key, pins_key, segment_key, spec_key
from flowmesh_control.records.lineage_keys import run_key
from flowmesh_control.records.run_records import PinsRecord
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.graph.plan import Plan
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_store.hashing import digest_of

RUN_TTL_S = 90 * DAY_S
SETTINGS = CollectionSettings(interval_s=0.0, grace_s=GRACE_S, run_ttl_s=RUN_TTL_S)
KIB = 1024


async def test_the_records_of_a_run_go_when_its_time_is_over_and_no_other_ones() -> None:
    aging = AgingStore.new()
    records, archive = aging.store.records, Archive(aging.store.records)
    index = EndedRunIndex(records, epoch=1)
    for uid in ("old", "of-a-batch"):
        final = await ends(records, uid)
        archive.add(final)
        index.add(final)
    await records.write(run_key("old", 0, [digest_of(b"x")]), b"[]")
    await AccountStore(records, epoch=1).write(AccountsRecord(1.0, FabricAccount(), {}, {}, {}))
    await index.write(2)
    aging.now_s += RUN_TTL_S
    archive.add(await ends(records, "young"))
    collection = aging.collection(SETTINGS, needed=frozenset({"of-a-batch"}), archive=archive)
    assert (await collection.collect(dry_run=True)).expired_runs == 1
    assert len(await aging.keys("runs/old/")) == 3

    assert (await collection.collect(dry_run=False)).expired_runs == 1
    assert await aging.keys("runs/old/") == []
    assert await aging.keys("lineage/") == []
    assert [run.uid for run in archive.summaries()] == ["of-a-batch", "young"]
    assert await archive.get("old") is None
    _, restarted, _ = await taken_over(records, 2)
    assert {run.uid for run in restarted.summaries()} == {"of-a-batch", "young"}


async def test_an_unfinished_run_stays_however_old_it_is() -> None:
    aging = AgingStore.new()
    await ends(aging.store.records, "open")
    await aging.store.sweepable_records.delete("runs/open/final", older_than_s=0.0)
    pins = PinsRecord(1, Plan("n", "team-a", (), {}), ScopePlan(SCOPE, (SCOPE,), SCOPE))
    await aging.store.records.write(pins_key("open"), msgspec.json.encode(pins))
    aging.now_s += 10 * RUN_TTL_S
    assert (await aging.collection(SETTINGS).collect(dry_run=False)).expired_runs == 0
    assert spec_key("open") in await aging.keys("runs/")


async def test_a_collection_that_dies_while_it_deletes_a_run_leaves_no_unfinished_run() -> None:
    aging = AgingStore.new()
    records = aging.store.records
    await ends(records, "old")
    aging.now_s += RUN_TTL_S
    sweepable, deleted = aging.store.sweepable_records, list[str]()

    class Dies:
        def aged(self, prefix: str):  # type: ignore[no-untyped-def]
            return sweepable.aged(prefix)

        async def delete(self, key: str, *, older_than_s: float) -> bool:
            if deleted:
                raise StoreUnavailableError("killed", where=key)
            deleted.append(key)
            return await sweepable.delete(key, older_than_s=older_than_s)

        async def erase_deleted(self) -> None:
            """As of the store."""

    whole = aging.store
    aging.store = replace(whole, sweepable_records=Dies())
    with pytest.raises(StoreUnavailableError):
        await aging.collection(SETTINGS).collect(dry_run=False)
    aging.store = whole
    found, archive, _ = await taken_over(records, 2)
    assert (found.submitted, archive.summaries()) == ([], [])

    assert (await aging.collection(SETTINGS).collect(dry_run=False)).expired_runs == 1
    assert await aging.keys("runs/old/") == []


async def test_accounts_and_cost_models_of_earlier_epochs_go_but_for_the_newest() -> None:
    aging = AgingStore.new()
    for epoch in range(1, 6):
        await aging.store.records.write(learned_key(epoch), b"{}")
        empty = AccountsRecord(1.0, FabricAccount(), {}, {}, {})
        await AccountStore(aging.store.records, epoch=epoch).write(empty)
    aging.now_s += GRACE_S
    await aging.collection(SETTINGS).collect(dry_run=False)
    assert await aging.keys("learned/") == [learned_key(4), learned_key(5)]
    assert len(await aging.keys("accounts/")) == 2


async def test_above_its_bound_the_results_that_were_used_least_recently_go_first() -> None:
    aging = AgingStore.new()
    uses = ResultUses(aging.store.records, aging.clock)
    data = {name: name.encode() * (100 * KIB) for name in "abcd"}
    actions = {}
    for name, content in data.items():
        actions[name] = await aging.publish(name, content)
        aging.now_s += 10.0
    assert await aging.cache(uses).lookup(actions["a"], [SCOPE])  # the oldest is used again
    aging.now_s += 2 * GRACE_S
    bounded = replace(SETTINGS, bytes_max=int(250 * KIB / FILL))
    meter = CollectionMeter()
    collection = aging.collection(bounded, uses=uses, meter=meter)

    assert (await collection.collect(dry_run=True)).evicted_results == 2
    assert len(await aging.results()) == 4
    report = await collection.collect(dry_run=False)
    assert (report.evicted_results, report.deleted, report.live_bytes) == (2, 2, 200 * KIB)
    assert await aging.results() == {actions["a"], actions["d"]}
    assert await aging.blobs() == {digest_of(data["a"]), digest_of(data["d"])}
    assert (meter.live_bytes, meter.deleted["results-evicted"]) == (200 * KIB, 2)
    assert (await collection.collect(dry_run=False)).evicted_results == 0

    # The next leader knows what was used.
    known = ResultUses(aging.store.records, aging.clock)
    await known.load()
    key = f"actions/{SCOPE}/{actions['a']}"
    assert known.last(key, 1.0) == uses.last(key, 1.0) > 1.0


async def test_a_run_that_cannot_be_read_is_named_and_no_result_is_evicted_in_vain() -> None:
    """Its namespace's content stays, so a bound would take every result and free nothing."""
    aging = AgingStore.new()
    old = await aging.publish("old", b"x" * (10 * KIB))
    aging.now_s += 2 * GRACE_S
    await ends(aging.store.records, "bad")
    await aging.store.sweepable_records.delete("runs/bad/final", older_than_s=0.0)
    meter = CollectionMeter()
    collection = aging.collection(replace(SETTINGS, bytes_max=KIB), meter=meter)
    report = await collection.collect(dry_run=False)
    (text,) = report.unreadable_runs
    assert "runs/bad/" in text
    assert meter.unreadable_runs == (text,)
    assert report.evicted_results == 0
    assert await aging.results() == {old}
    await aging.store.sweepable_records.delete(spec_key("bad"), older_than_s=0.0)
    report = await collection.collect(dry_run=False)
    assert (report.evicted_results, meter.unreadable_runs) == (1, ())


async def test_nothing_younger_than_the_grace_is_evicted() -> None:
    aging = AgingStore.new()
    young = await aging.publish("young", b"x" * (10 * KIB))
    report = await aging.collection(replace(SETTINGS, bytes_max=KIB)).collect(dry_run=False)
    assert report.evicted_results == 0
    assert await aging.results() == {young}


async def test_the_leader_collects_by_itself_and_goes_on_after_a_failure() -> None:
    aging = AgingStore.new()
    garbage = await aging.put(b"garbage")
    aging.now_s += 2 * GRACE_S
    meter = CollectionMeter()
    store, failures = aging.store, [StoreUnavailableError("away", where="cas")]
    content = store.sweepable_blobs

    class FailsOnce:
        def blobs(self, scope: str = ""):  # type: ignore[no-untyped-def]
            if failures:
                raise failures.pop()
            return content.blobs(scope)

        def __getattr__(self, name: str) -> object:
            return getattr(content, name)

    aging.store = replace(store, sweepable_blobs=FailsOnce())  # type: ignore[arg-type]
    collection = aging.collection(replace(SETTINGS, interval_s=0.001), meter=meter)
    running = asyncio.create_task(collection.run())
    async with asyncio.timeout(60):
        while not meter.ended["ok"]:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert meter.ended["failed"] == 1
    assert garbage.blob not in await aging.blobs()
    assert (meter.deleted["blobs"], meter.deleted_bytes) == (1, len(b"garbage"))
    assert meter.last_s == aging.now_s


async def test_an_interval_of_zero_means_that_nothing_is_collected_by_itself() -> None:
    aging = AgingStore.new()
    meter = CollectionMeter()
    async with asyncio.timeout(60):
        await aging.collection(SETTINGS, meter=meter).run()
    assert not meter.ended


async def test_a_segment_of_a_superseded_leader_makes_its_run_young() -> None:
    """It is written after the end, so the run's other records are older than it."""
    aging = AgingStore.new()
    await ends(aging.store.records, "old")
    aging.now_s += RUN_TTL_S
    await aging.store.records.write(segment_key("old", 1, 2), b"")
    assert (await aging.collection(SETTINGS).collect(dry_run=False)).expired_runs == 0


async def test_a_result_goes_when_the_ttl_of_its_cache_policy_is_over() -> None:
    aging = AgingStore.new()
    short = await aging.publish("short", b"short", ttl_s=2 * GRACE_S)
    usual = await aging.publish("usual", b"usual")
    aging.now_s += 2 * GRACE_S
    collection = aging.collection(SETTINGS, shortest_ttl_s=2 * GRACE_S)
    report = await collection.collect(dry_run=False)
    assert (report.expired_results, report.deleted) == (1, 1)
    assert await aging.results() == {usual} != {short}
