"""Hosts are opened ahead of work in the order told, behind attempts, and never at their cost."""

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.blob_views import blobs_of

from flowmesh_core.protocol.messages import Desired, decode_control, encode
from flowmesh_worker.engines.registry import EngineEntry, Engines

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import PrewarmSpec
from tests.flowmesh_worker.prewarming import (
    FIRST,
    FOURTH,
    SAID,
    SECOND,
    THIRD,
    Gates,
    fetched_to,
    host_of,
    pass_by,
    sleeping,
    until_open,
    using,
)


def test_an_empty_prewarm_list_and_none_are_distinguished_in_messages() -> None:
    sent: list[tuple[PrewarmSpec, ...] | None] = [None, ()]
    for listed in sent:
        there = decode_control(encode(Desired(1, 1, prewarm=listed)))
        assert isinstance(there, Desired)
        assert there.prewarm == listed


async def test_a_prewarmed_host_is_loaded_once_and_runs_later_work(
    world: "World",
) -> None:
    agent = await world.worker()
    ref = await world.model("m")
    opening = world.prewarm("test.noop", components={"m": ref.artifact})
    await world.gateway.desire(prewarm=(opening,))
    await until_open(world, opening.signature)
    (said,) = world.gateway.lanes
    assert (said.load_s > 0, said.memory_mib) == (True, opening.memory_mib)
    (component,) = await world.gateway.until(lambda: world.gateway.components)
    assert (component.digest, component.tier) == (ref.artifact.digest, "host")
    host = host_of(agent, opening.signature).process.pid
    end = await world.gateway.do(world.assignment("test.noop", **using(ref)))
    assert end.failure is None
    assert end.usage.load_s == 0
    assert [lane.process.pid for lane in agent.hosts] == [host]


async def test_a_prewarmed_host_is_started_like_one_for_an_attempt(world: "World") -> None:
    contract = world.engines.contract("llm.generate")
    assert contract is not None
    nothing = "flowmesh_worker.engines.testing.noop:Noop"
    world.engines = Engines([EngineEntry(contract, nothing)])
    agent = await world.worker()
    model, adapter = await world.model("m"), await world.model("a")
    alike: dict[str, Any] = {"signature_params": {"dtype": "float32"}, "memory_mib": 100}
    opening = world.prewarm(
        "llm.generate",
        signature=FIRST,
        components={"model": model.artifact},
        per_attempt_components=("adapter",),
        **alike,
    )
    await world.gateway.desire(prewarm=(opening,))
    work = world.assignment(
        "llm.generate",
        signature=SECOND,
        inputs={"model": model, "adapter": adapter},
        components=("model", "adapter"),
        **alike,
    )
    await world.gateway.assign(work)
    await until_open(world, FIRST, SECOND)
    first, second = (host_of(agent, s).start for s in (FIRST, SECOND))
    assert msgspec.structs.replace(first, scratch=second.scratch) == second
    assert (first.mixed, first.signature_params) == (("adapter",), {"dtype": "float32"})


async def test_an_engine_that_does_not_load_is_reported_once_and_the_worker_keeps_serving(
    world: "World", caplog: pytest.LogCaptureFixture
) -> None:
    broken, noop = (world.engines.contract(name) for name in ("test.map", "test.noop"))
    assert broken is not None
    assert noop is not None
    world.engines = Engines(
        [EngineEntry(broken, "nowhere:Nothing"), EngineEntry(noop, world.engines.loads(noop.name))]
    )
    agent = await world.worker(memory_mib=1000)
    unknown = world.prewarm("test.noop", signature=SECOND)
    listed = (
        world.prewarm("test.map", signature=FIRST),
        msgspec.structs.replace(unknown, engine="test.unheard-of"),
        world.prewarm("test.noop", signature=THIRD, memory_mib=5000),
        world.prewarm("test.noop", signature=FOURTH),
    )
    with caplog.at_level(logging.WARNING, SAID):
        await world.gateway.desire(prewarm=listed)
        await until_open(world, FOURTH)
        await world.gateway.desire(prewarm=listed)
        await pass_by(world, signature=FOURTH)
    said = [r.reason for r in caplog.records if r.name == SAID]  # type: ignore[attr-defined]
    assert len(said) == 3
    assert sorted(w for w in ("nowhere", "unheard-of", "5000") if any(w in t for t in said)) == [
        "5000",
        "nowhere",
        "unheard-of",
    ]
    assert agent._scratch.host_folders == 2


async def test_an_attempt_joins_the_running_fetch_of_its_components(world: "World") -> None:
    ref = await world.model("m")
    digest = ref.artifact.blob
    blobs = Gates(blobs_of(world.store), digest)
    agent = await world.worker(blobs=blobs)
    opening = world.prewarm("test.noop", components={"m": ref.artifact})
    await world.gateway.desire(prewarm=(opening,))
    await blobs.until_asked(digest)
    work = world.assignment("test.noop", **using(ref))
    await world.gateway.assign(work)
    await world.gateway.phase(work.attempt_id, "fetching")
    blobs.open(digest)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    assert blobs.asked == [digest]
    assert agent._scratch.host_folders == 1


async def test_a_fetch_that_an_attempt_joined_continues_after_its_entry_left_the_list(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.blob
    blobs = Gates(blobs_of(world.store), digest)
    agent = await world.worker(blobs=blobs)
    opening = world.prewarm("test.noop", components={"m": ref.artifact})
    await world.gateway.desire(prewarm=(opening,))
    await blobs.until_asked(digest)
    work = world.assignment("test.noop", **using(ref))
    await world.gateway.assign(work)
    await world.gateway.until(lambda: agent._components._trees[ref.artifact.digest].pins == 2)
    await world.gateway.desire(prewarm=())
    await pass_by(world, signature=SECOND)
    blobs.open(digest)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    assert blobs.asked == [digest]


async def test_a_prewarm_entry_waits_for_a_busy_host_and_keeps_its_fetched_components(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.blob
    blobs = Gates(blobs_of(world.store), digest)
    blobs.open(digest)
    # There is no room on the disk either.
    agent = await world.worker(blobs=blobs, memory_mib=1000, cache_bytes=2)
    busy = sleeping(world, FIRST, memory_mib=800)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    held = {"m": ref.artifact}
    await world.gateway.desire(
        prewarm=(world.prewarm("test.noop", signature=SECOND, memory_mib=800, components=held),)
    )
    await blobs.until_asked(digest)
    for _ in range(3):
        quick = sleeping(world, FIRST, params={"seconds": 0}, memory_mib=800)
        assert (await world.gateway.do(quick)).failure is None
    assert {lane.signature for lane in world.gateway.lanes} == {FIRST}
    await world.gateway.desire(cancel=(busy.attempt_id,))
    await until_open(world, SECOND)
    assert blobs.asked == [digest]
    assert [name.name for name in fetched_to(agent, SECOND).iterdir()] == ["config.json"]
