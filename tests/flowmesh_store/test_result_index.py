"""Look-ups that would find nothing ask no store, and none misses a result that is there."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_store import result_index
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.hashing import digest_of
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.ports import Record
from flowmesh_store.result_index import ResultIndex


class CountedRecords(MemoryRecords):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self, key: str) -> Record | None:
        self.reads += 1
        return await super().read(key)


def action(name: str) -> Digest:
    return digest_of(name.encode())


def result(name: str) -> ActionResult:
    return ActionResult(
        action_id=action(name), generation=0, engine="test.noop", contract=1, implementation=1,
        inputs={}, outputs={}, run_uid="run",
    )  # fmt: skip


async def test_a_look_up_asks_the_store_only_for_results_that_may_be_there() -> None:
    records, index = CountedRecords(), ResultIndex()
    await ActionCache(records).publish("ns-a", result("of an earlier leader"))
    cache = ActionCache(records, index=index)
    assert await cache.lookup(action("never run"), ["ns-a", "group"]) is None
    assert records.reads == 2, "the index is not complete, so both scopes were asked"
    await index.load(lambda: records.keys("actions/"))
    records.reads = 0
    assert await cache.lookup(action("never run"), ["ns-a", "group"]) is None
    assert records.reads == 0
    assert await cache.lookup(action("of an earlier leader"), ["ns-a"]) is not None
    await cache.publish("group", result("new"))
    assert await cache.lookup(action("new"), ["ns-a", "group"]) is not None


async def test_a_late_result_of_a_superseded_leader_is_adopted() -> None:
    records, index = CountedRecords(), ResultIndex()
    await index.load(lambda: records.keys("actions/"))
    late = await ActionCache(records).publish("ns-a", result("late"))
    cache = ActionCache(records, index=index)
    assert await cache.lookup(action("late"), ["ns-a"]) is None
    adopted = await cache.publish("ns-a", result("late"))
    assert (adopted.won, adopted.etag) == (False, late.etag)
    assert await cache.lookup(action("late"), ["ns-a"]) is not None


async def test_a_store_that_does_not_answer_is_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_index, "_RETRY_S", 0.0)
    records, index, calls = CountedRecords(), ResultIndex(), [0]
    await ActionCache(records).publish("ns-a", result("old"))

    async def keys() -> AsyncIterator[str]:
        calls[0] += 1
        yield f"actions/ns-a/{action('first page')}"
        if calls[0] < 3:
            raise StoreUnavailableError("no answer", where="s3://bucket", remedy="wait")
        async for key in records.keys("actions/"):
            yield key

    loading = asyncio.create_task(index.load(keys))
    await loading
    assert calls[0] == 3
    assert index.may_have(action("old"))
    assert not index.may_have(action("never run"))


async def test_keys_that_are_no_results_are_skipped() -> None:
    async def keys() -> AsyncIterator[str]:
        for name in ("notes.txt", "", "zz" * 32, str(action("real"))):
            yield f"actions/ns-a/{name}"

    index = ResultIndex()
    await index.load(keys)
    assert index.may_have(action("real"))
    assert not index.may_have(action("other"))


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=60))
def test_every_added_action_may_have_a_result(ids: list[bytes]) -> None:
    async def keys() -> AsyncIterator[str]:
        for one in ids[::2]:
            yield f"actions/s/{one.hex()}"

    index = ResultIndex()
    asyncio.run(index.load(keys))
    for one in ids[1::2]:
        index.add(Digest(one.hex()))
    assert all(index.may_have(Digest(one.hex())) for one in ids)
