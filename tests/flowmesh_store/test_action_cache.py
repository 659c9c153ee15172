"""At most once to publish; repair by generation."""

import asyncio

import pytest
from backends import Backend

from flowmesh_core.protocol.result_selection import ResultSelection
from flowmesh_core.protocol.results import ActionResult, PartProvenance, Provenance
from flowmesh_store.action_cache import RESULT_TTL_S, ActionCache
from flowmesh_store.hashing import digest_of
from flowmesh_store.keys import action_key
from flowmesh_store.ports import Record, RecordStore
from flowmesh_store.withheld_results import WithheldResults

ACTION = digest_of(b"an action")
DAY_S = 24 * 3600.0


def result(run: str = "run-1", **fields: object) -> ActionResult:
    return ActionResult(
        action_id=ACTION, generation=0, engine="test.noop", contract=1, implementation=1,
        inputs={}, outputs={}, run_uid=run, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(backend: Backend, clock: Clock) -> ActionCache:
    return ActionCache(backend.store.records, clock=clock)


async def test_a_published_result_is_found_in_the_first_scope_that_has_it(
    cache: ActionCache,
) -> None:
    assert await cache.lookup(ACTION, ["own", "group"]) is None
    await cache.publish("group", result("in-group"))
    found = await cache.lookup(ACTION, ["own", "group"])
    assert found is not None
    assert (found.scope, found.result.run_uid, found.won) == ("group", "in-group", False)
    await cache.publish("own", result("in-own"))
    found = await cache.lookup(ACTION, ["own", "group"])
    assert found is not None
    assert found.result.run_uid == "in-own"
    assert await cache.lookup(ACTION, ["elsewhere"]) is None
    assert await cache.lookup(ACTION, []) is None


async def test_the_first_publication_wins_and_the_second_adopts_it(cache: ActionCache) -> None:
    first = await cache.publish("s", result("first"))
    second = await cache.publish("s", result("second"))
    assert (first.won, second.won) == (True, False)
    assert second.result == first.result
    assert second.etag == first.etag
    assert (first.result.generation, first.result.created_s) == (1, 1_700_000_000.0)
    assert first.result.expires_s == first.result.created_s + RESULT_TTL_S


async def test_of_64_racing_publishers_one_wins_and_all_agree(cache: ActionCache) -> None:
    published = await asyncio.gather(*(cache.publish("s", result(f"r{i}")) for i in range(64)))
    assert sum(p.won for p in published) == 1
    assert len({p.result.run_uid for p in published}) == 1


async def test_an_expired_result_is_a_miss_and_replaced_with_a_higher_generation(
    cache: ActionCache, clock: Clock
) -> None:
    await cache.publish("s", result("old"))
    clock.now_s += RESULT_TTL_S + 1
    assert await cache.lookup(ACTION, ["s"]) is None
    renewed = await asyncio.gather(*(cache.publish("s", result(f"new{i}")) for i in range(8)))
    assert sum(p.won for p in renewed) == 1
    found = await cache.lookup(ACTION, ["s"])
    assert found is not None
    assert (found.result.generation, found.result.run_uid[:3]) == (2, "new")


async def test_a_result_too_old_for_one_run_is_a_miss_only_for_that_run(
    cache: ActionCache, clock: Clock
) -> None:
    await cache.publish("s", result("old"))
    clock.now_s += DAY_S
    recent = clock.now_s - 60
    assert await cache.lookup(ACTION, ["s"], not_before_s=recent) is None
    assert await cache.lookup(ACTION, ["s"]) is not None
    newer = await cache.publish("s", result("new"), not_before_s=recent)
    assert (newer.won, newer.result.generation) == (True, 2)


async def test_a_result_of_a_pool_with_too_little_trust_is_a_miss_for_runs_that_require_more(
    cache: ActionCache,
) -> None:
    await cache.publish("s", result("low", provenance=Provenance(trust=1)))
    assert await cache.lookup(ACTION, ["s"], min_trust=2) is None
    assert await cache.lookup(ACTION, ["s"], min_trust=1) is not None
    better = await cache.publish("s", result("high"), min_trust=2)
    assert (better.won, better.result.generation) == (True, 2)
    kept = await cache.publish("s", result("low", provenance=Provenance(trust=1)), min_trust=1)
    assert (kept.won, kept.result.run_uid) == (False, "high")


async def test_a_result_that_lost_a_blob_is_replaced_once(cache: ActionCache) -> None:
    stale = await cache.publish("s", result("first"))
    repaired = await asyncio.gather(*(cache.replace(stale, result(f"r{i}")) for i in range(16)))
    assert sum(p.won for p in repaired) == 1
    assert {p.result.generation for p in repaired} == {2}
    assert len({p.result.run_uid for p in repaired}) == 1
    again = await cache.replace(repaired[0], result("third"))
    assert (again.won, again.result.generation) == (True, 3)


async def test_a_result_deleted_by_a_collection_can_still_be_repaired(
    cache: ActionCache, backend: Backend
) -> None:
    stale = await cache.publish("s", result("first"))
    assert await backend.store.sweepable_records.delete(action_key("s", ACTION), older_than_s=0)
    repaired = await cache.replace(stale, result("second"))
    assert (repaired.won, repaired.result.generation) == (True, 2)


@pytest.mark.parametrize("torn", [b"", b"\0" * 100, b'{"action_id":"', b"[]"])
async def test_an_unreadable_record_is_a_miss_and_the_next_publication_replaces_it(
    cache: ActionCache, backend: Backend, torn: bytes
) -> None:
    await backend.store.records.write(action_key("s", ACTION), torn)
    assert await cache.lookup(ACTION, ["s"]) is None
    assert (await cache.publish("s", result("whole"))).won
    assert await cache.lookup(ACTION, ["s"]) is not None


async def test_a_record_of_another_action_or_with_false_inline_content_is_a_miss(
    cache: ActionCache, backend: Backend
) -> None:
    await cache.publish("s", result())
    written = await backend.store.records.read(action_key("s", ACTION))
    assert written is not None
    other = digest_of(b"another action")
    await backend.store.records.write(action_key("s", other), written.data)
    assert await cache.lookup(other, ["s"]) is None
    await cache.publish("t", result(inline={digest_of(b"x"): b"y"}))
    assert await cache.lookup(ACTION, ["t"]) is None


async def test_without_a_life_span_results_never_expire(backend: Backend, clock: Clock) -> None:
    cache = ActionCache(backend.store.records, ttl_s=None, clock=clock)
    await cache.publish("s", result())
    clock.now_s += 1e9
    assert await cache.lookup(ACTION, ["s"]) is not None


async def test_a_withheld_result_is_a_miss_and_is_replaced_at_the_next_generation(
    backend: Backend, clock: Clock
) -> None:
    withheld = WithheldResults()
    cache = ActionCache(backend.store.records, clock=clock, withheld=withheld)
    await cache.publish("group", result("liar", provenance=Provenance(worker="w-1", pool="w")))
    await cache.publish("own", result("honest"))
    found = await cache.lookup(ACTION, ["group"])
    assert found is not None
    withheld.add("group", ACTION, (found.result.generation, found.result.created_s))
    assert await cache.lookup(ACTION, ["group"]) is None
    other = await cache.lookup(ACTION, ["group", "own"])
    assert other is not None
    assert other.scope == "own"
    clock.now_s += 1
    again = await cache.publish("group", result("again"))
    assert (again.won, again.result.generation) == (True, 2)
    found = await cache.lookup(ACTION, ["group"])
    assert found is not None
    assert found.result.run_uid == "again"
    withheld.remove("group", ACTION)
    assert await cache.lookup(ACTION, ["group"]) is not None


async def test_a_selection_hides_results_of_a_worker_and_whole_steps_with_a_part_of_it(
    backend: Backend, clock: Clock
) -> None:
    withheld = WithheldResults()
    cache = ActionCache(backend.store.records, clock=clock, withheld=withheld)
    part = PartProvenance("s/a/1-1", "w-1", "w", clock.now_s)
    await cache.publish("whole", result(provenance=Provenance(parts=(part,))))
    await cache.publish("part", result(provenance=Provenance(worker="w-1", pool="w")))
    await cache.publish("other", result(provenance=Provenance(worker="w-1", pool="x")))
    withheld.hide_all(ResultSelection(worker="w-1", pool="w", until_s=clock.now_s))
    assert await cache.lookup(ACTION, ["whole", "part"]) is None
    assert await cache.lookup(ACTION, ["other"]) is not None
    clock.now_s += 1
    await cache.publish("part", result(provenance=Provenance(worker="w-1", pool="w")))
    assert await cache.lookup(ACTION, ["part"]) is not None
    withheld.clear_selections()
    assert await cache.lookup(ACTION, ["whole"]) is not None


class GatedRecords:
    """Records whose writes wait until the test lets them go on."""

    def __init__(self, inner: RecordStore) -> None:
        self._inner = inner
        self.gates = asyncio.Queue[asyncio.Event]()

    async def read(self, key: str) -> Record | None:
        return await self._inner.read(key)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        gate = asyncio.Event()
        self.gates.put_nowait(gate)
        await gate.wait()
        return await self._inner.write(key, data, if_match=if_match)


async def test_writes_that_begin_later_are_not_waited_for(backend: Backend) -> None:
    records = GatedRecords(backend.store.records)
    cache = ActionCache(records)
    earlier = asyncio.create_task(cache.publish("own", result()))
    gate = await records.gates.get()
    waiting = asyncio.create_task(cache.writes_under_way())
    later = asyncio.create_task(cache.publish("group", result()))
    later_gate = await records.gates.get()
    assert not waiting.done()
    gate.set()
    await asyncio.wait_for(waiting, 10)
    assert not later.done()
    later_gate.set()
    assert (await earlier).won
    assert (await later).won
    await cache.writes_under_way()
