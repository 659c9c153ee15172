"""Hosts are opened ahead of work in the order told, behind attempts, and never at their cost."""

import logging
import os
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Desired, Refused, decode_control, encode
from flowmesh_worker.engines.registry import EngineEntry, Engines

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import PrewarmSpec
from tests.flowmesh_worker.opening import (
    FIRST,
    FOURTH,
    SAID,
    SECOND,
    THIRD,
    Gates,
    lane_of,
    pass_by,
    sleeping,
    until_open,
    using,
)


def test_a_list_that_is_empty_says_more_than_none_and_both_survive_the_wire() -> None:
    sent: list[tuple[PrewarmSpec, ...] | None] = [None, ()]
    for hold_open in sent:
        there = decode_control(encode(Desired(1, 1, hold_open=hold_open)))
        assert isinstance(there, Desired)
        assert there.hold_open == hold_open


async def test_a_host_opened_ahead_of_work_is_loaded_once_and_runs_what_comes(
    world: "World",
) -> None:
    agent = await world.worker()
    ref = await world.model("m")
    opening = world.opening("test.noop", components={"m": ref.artifact.digest})
    await world.gateway.desire(hold_open=(opening,))
    await until_open(world, opening.signature)
    (said,) = world.gateway.lanes
    assert (said.load_s > 0, said.memory_mib) == (True, opening.memory_mib)
    (component,) = await world.gateway.until(lambda: world.gateway.components)
    assert (component.digest, component.tier) == (ref.artifact.digest, "host")
    host = lane_of(agent, opening.signature).process.pid
    end = await world.gateway.do(world.assignment("test.noop", **using(ref)))
    assert end.failure is None
    assert end.usage.load_s == 0
    assert [lane.process.pid for lane in agent.hosts] == [host]


async def test_it_is_started_as_an_attempt_would_have_it_started(world: "World") -> None:
    contract = world.engines.contract("llm.generate")
    assert contract is not None
    nothing = "flowmesh_worker.engines.testing.noop:Noop"
    world.engines = Engines([EngineEntry(contract, nothing)])
    agent = await world.worker()
    model, adapter = await world.model("m"), await world.model("a")
    alike: dict[str, Any] = {"signature_params": {"dtype": "float32"}, "memory_mib": 100}
    opening = world.opening(
        "llm.generate",
        signature=FIRST,
        components={"model": model.artifact.digest},
        mixed=("adapter",),
        **alike,
    )
    await world.gateway.desire(hold_open=(opening,))
    work = world.assignment(
        "llm.generate",
        signature=SECOND,
        inputs={"model": model, "adapter": adapter},
        components=("model", "adapter"),
        **alike,
    )
    await world.gateway.assign(work)
    await until_open(world, FIRST, SECOND)
    first, second = (lane_of(agent, s).start for s in (FIRST, SECOND))
    assert msgspec.structs.replace(first, scratch=second.scratch) == second
    assert (first.mixed, first.signature_params) == (("adapter",), {"dtype": "float32"})


async def test_an_engine_that_does_not_load_is_told_once_and_the_worker_serves_on(
    world: "World", caplog: pytest.LogCaptureFixture
) -> None:
    broken, noop = (world.engines.contract(name) for name in ("test.map", "test.noop"))
    assert broken is not None
    assert noop is not None
    world.engines = Engines(
        [EngineEntry(broken, "nowhere:Nothing"), EngineEntry(noop, world.engines.loads(noop.name))]
    )
    agent = await world.worker(memory_mib=1000)
    unknown = world.opening("test.noop", signature=SECOND)
    listed = (
        world.opening("test.map", signature=FIRST),
        msgspec.structs.replace(unknown, engine="test.unheard-of"),
        world.opening("test.noop", signature=THIRD, memory_mib=5000),
        world.opening("test.noop", signature=FOURTH),
    )
    with caplog.at_level(logging.WARNING, SAID):
        await world.gateway.desire(hold_open=listed)
        await until_open(world, FOURTH)
        await world.gateway.desire(hold_open=listed)
        await pass_by(world, signature=FOURTH)
    said = [r.reason for r in caplog.records if r.name == SAID]  # type: ignore[attr-defined]
    assert len(said) == 3
    assert sorted(w for w in ("nowhere", "unheard-of", "5000") if any(w in t for t in said)) == [
        "5000",
        "nowhere",
        "unheard-of",
    ]
    assert agent._scratch.host_folders == 2


async def test_a_host_that_dies_before_it_served_is_left_to_the_work_that_shares_it(
    world: "World", caplog: pytest.LogCaptureFixture
) -> None:
    agent = await world.worker()
    opening = world.opening("test.noop", signature=FIRST)
    await world.gateway.desire(hold_open=(opening,))
    await until_open(world, FIRST)
    with caplog.at_level(logging.WARNING, SAID):
        os.kill(lane_of(agent, FIRST).process.pid, signal.SIGKILL)
        await world.gateway.until(lambda: not world.gateway.lanes)
        await pass_by(world, signature=FIRST, isolate=True)
        await pass_by(world, signature=SECOND)
    assert [r.name for r in caplog.records] == [SAID]
    assert "SIGKILL" in caplog.text
    await until_open(world, SECOND)
    assert {lane.signature for lane in agent.hosts} == {SECOND}
    await pass_by(world, signature=FIRST)  # opens it by itself, and so it is wanted again
    dead = lane_of(agent, FIRST).process.pid
    os.kill(dead, signal.SIGKILL)
    await world.gateway.until(
        lambda: [x for x in agent.hosts if x.signature == FIRST and x.process.pid not in (0, dead)]
    )
    await until_open(world, FIRST, SECOND)


async def test_an_isolated_attempt_neither_uses_nor_counts_as_a_host_held_open(
    world: "World",
) -> None:
    agent = await world.worker()
    alone = sleeping(world, FIRST, isolate=True)
    await world.gateway.assign(alone)
    await world.gateway.phase(alone.attempt_id, "running")
    await world.gateway.desire(hold_open=(world.opening("test.sleep", signature=FIRST),))
    await world.gateway.until(lambda: [s.state for s in world.gateway.lanes] == ["ready", "ready"])
    await world.gateway.desire(cancel=(alone.attempt_id,))
    await until_open(world, FIRST)
    await world.gateway.until(lambda: len(world.gateway.lanes) == 1)
    assert [i.isolated_for for i in agent.machine.state.instances.values()] == [""]


async def test_a_worker_that_drains_opens_nothing(world: "World") -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    agent = await world.worker(blobs=blobs, grace_s=2.0)
    busy = sleeping(world, FIRST)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    fetched = world.opening("test.noop", signature=SECOND, components={"m": digest})
    await world.gateway.desire(hold_open=(fetched,))
    await blobs.until_asked(digest)
    blobs.open(digest)
    at_once = world.opening("test.noop", signature=THIRD)
    await world.gateway.desire(drain=True, hold_open=(at_once, fetched))
    await world.gateway.until(lambda: world.gateway.syncs[-1].draining)
    await world.gateway.desire(hold_open=(fetched, at_once))
    end = await world.gateway.end(busy.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.DRAINED
    await world.gateway.until(lambda: world.gateway.syncs[-1].goodbye)
    assert agent._scratch.host_folders == 1


async def test_a_worker_that_nobody_welcomes_opens_nothing_and_keeps_its_list(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    agent = await world.worker(blobs=blobs)
    opening = world.opening("test.noop", signature=FIRST, components={"m": digest})
    await world.gateway.desire(hold_open=(opening,))
    await blobs.until_asked(digest)
    world.gateway.refuse = Refused("not now", final=False)
    assert world.gateway.socket is not None
    await world.gateway.socket.close()
    alone = len(world.gateway.hellos)
    await world.gateway.until(lambda: len(world.gateway.hellos) > alone)
    blobs.open(digest)
    await world.gateway.until(lambda: agent._components.holds(digest))
    later = len(world.gateway.hellos)
    await world.gateway.until(lambda: len(world.gateway.hellos) > later)
    assert agent._scratch.host_folders == 0
    world.gateway.refuse = None
    await until_open(world, FIRST)
