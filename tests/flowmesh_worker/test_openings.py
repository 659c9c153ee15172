"""Hosts are opened ahead of work in the order told, behind attempts, and never at their cost."""

import asyncio
import logging
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.messages import Desired, Refused, decode_control, encode
from flowmesh_worker.engines.registry import EngineEntry, Engines

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import Assignment, InputRef, Opening
    from flowmesh_core.units import Digest
    from flowmesh_worker.agent import Agent
    from flowmesh_worker.lane import Lane

FIRST, SECOND, THIRD, FOURTH = (digest_bytes(bytes([i])) for i in range(4))
SAID = "flowmesh_worker.openings"


class Gates:
    """A store that hands some blobs out only when told to, and notes who asked for them."""

    def __init__(self, inner: Any, *shut: "Digest") -> None:
        self._inner = inner
        self.asked: list[Digest] = []
        self._open: dict[Digest, asyncio.Event] = defaultdict(asyncio.Event)
        self._shut = set(shut)
        self._news = asyncio.Condition()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, digest: "Digest") -> bytes:
        if digest in self._shut:
            async with self._news:
                self.asked.append(digest)
                self._news.notify_all()
            await self._open[digest].wait()
        data: bytes = await self._inner.get(digest)
        return data

    async def until_asked(self, digest: "Digest", times: int = 1) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: self.asked.count(digest) >= times)

    def open(self, digest: "Digest") -> None:
        self._open[digest].set()


async def until_open(world: "World", *signatures: "Digest") -> None:
    """Waits until there are ready lanes of these signatures and no others."""
    await world.gateway.until(
        lambda: (
            {lane.signature for lane in world.gateway.lanes} == set(signatures)
            and all(lane.state == "ready" for lane in world.gateway.lanes)
        )
    )


async def pass_by(world: "World", **changes: Any) -> None:
    """Has an attempt run to its end: time for what should not happen to happen."""
    assert (await world.gateway.do(world.assignment("test.noop", **changes))).failure is None


def lane_of(agent: "Agent", signature: "Digest") -> "Lane":
    (lane,) = (lane for lane in agent._lanes if lane.signature == signature)
    return lane


def fetched_to(agent: "Agent", signature: "Digest") -> Path:
    (component,) = lane_of(agent, signature).components.values()
    return Path(component.paths[0])


def using(ref: "InputRef") -> dict[str, Any]:
    return {"inputs": {"m": ref}, "components": ("m",)}


def sleeping(world: "World", signature: "Digest", **changes: Any) -> "Assignment":
    defaults: dict[str, Any] = {"params": {"seconds": 600}, "signature": signature}
    return world.assignment("test.sleep", **(defaults | changes))


def test_a_list_that_is_empty_says_more_than_none_and_both_survive_the_wire() -> None:
    sent: list[tuple[Opening, ...] | None] = [None, ()]
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
    assert [lane.process.pid for lane in agent._lanes] == [host]


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
    first, second = (lane_of(agent, s)._start_message for s in (FIRST, SECOND))
    assert msgspec.structs.replace(first, scratch=second.scratch) == second
    assert (first.mixed, first.signature_params) == (("adapter",), {"dtype": "float32"})


async def test_listed_hosts_are_fetched_one_after_the_other_in_the_order_of_the_list(
    world: "World",
) -> None:
    one, two = await world.model("one"), await world.model("two")
    first, second = one.artifact.digest, two.artifact.digest
    blobs = Gates(world.store.blobs, first, second)
    await world.worker(blobs=blobs)
    await world.gateway.desire(
        hold_open=(
            world.opening("test.noop", signature=SECOND, components={"m": second}),
            world.opening("test.noop", signature=FIRST, components={"m": first}),
            world.opening("test.noop", signature=FOURTH),
        )
    )
    await blobs.until_asked(second)
    await pass_by(world, signature=THIRD)
    assert blobs.asked == [second]
    await until_open(world, THIRD, FOURTH)  # of which nothing need be fetched
    blobs.open(second)
    await blobs.until_asked(first)
    await until_open(world, SECOND, THIRD, FOURTH)
    blobs.open(first)
    await until_open(world, FIRST, SECOND, THIRD, FOURTH)
    assert blobs.asked == [second, first]


async def test_nothing_is_fetched_ahead_while_an_attempt_fetches(world: "World") -> None:
    mine, theirs = await world.model("mine"), await world.model("theirs")
    ahead, needed = mine.artifact.digest, theirs.artifact.digest
    blobs = Gates(world.store.blobs, ahead, needed)
    await world.worker(blobs=blobs)
    work = world.assignment("test.noop", signature=FIRST, **using(theirs))
    await world.gateway.assign(work)
    await blobs.until_asked(needed)
    await world.gateway.desire(
        hold_open=(world.opening("test.noop", signature=SECOND, components={"m": ahead}),)
    )
    await pass_by(world, signature=THIRD)
    assert blobs.asked == [needed]
    blobs.open(needed)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    await blobs.until_asked(ahead)
    blobs.open(ahead)
    await until_open(world, FIRST, SECOND, THIRD)


async def test_a_new_order_holds_for_what_is_not_being_fetched_yet(world: "World") -> None:
    refs = [await world.model(name) for name in "abcd"]
    a, b, c, needed = (ref.artifact.digest for ref in refs)
    blobs = Gates(world.store.blobs, a, b, c, needed)
    await world.worker(blobs=blobs)
    work = world.assignment("test.noop", signature=FOURTH, **using(refs[3]))
    await world.gateway.assign(work)
    await blobs.until_asked(needed)
    one, two, three = (
        world.opening("test.noop", signature=s, components={"m": d})
        for s, d in ((FIRST, a), (SECOND, b), (THIRD, c))
    )
    await world.gateway.desire(hold_open=(one, two))
    await world.gateway.desire(hold_open=(two, one))
    blobs.open(needed)
    await blobs.until_asked(b)
    await world.gateway.desire(hold_open=(three, one, two))
    await pass_by(world, signature=FOURTH)
    assert blobs.asked == [needed, b]
    for digest in (b, c, a):
        await blobs.until_asked(digest)
        blobs.open(digest)
    await until_open(world, FIRST, SECOND, THIRD, FOURTH)
    assert blobs.asked == [needed, b, c, a]


async def test_what_lies_on_the_disk_opens_whoever_fetches(world: "World") -> None:
    mine, theirs = await world.model("mine"), await world.model("theirs")
    blobs = Gates(world.store.blobs, theirs.artifact.digest)
    await world.worker(blobs=blobs)
    await pass_by(world, signature=FIRST, **using(mine))
    await world.gateway.assign(world.assignment("test.noop", signature=THIRD, **using(theirs)))
    await blobs.until_asked(theirs.artifact.digest)
    held = {"m": mine.artifact.digest}
    await world.gateway.desire(
        hold_open=(world.opening("test.noop", signature=SECOND, components=held),)
    )
    await until_open(world, FIRST, SECOND)


async def test_an_attempt_joins_the_fetch_of_what_it_needs(world: "World") -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    agent = await world.worker(blobs=blobs)
    opening = world.opening("test.noop", components={"m": digest})
    await world.gateway.desire(hold_open=(opening,))
    await blobs.until_asked(digest)
    work = world.assignment("test.noop", **using(ref))
    await world.gateway.assign(work)
    await world.gateway.phase(work.attempt_id, "fetching")
    blobs.open(digest)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    assert blobs.asked == [digest]
    assert agent._lanes._count == 1


async def test_a_fetch_that_an_attempt_joined_goes_on_when_the_host_has_left_the_list(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    agent = await world.worker(blobs=blobs)
    opening = world.opening("test.noop", components={"m": digest})
    await world.gateway.desire(hold_open=(opening,))
    await blobs.until_asked(digest)
    work = world.assignment("test.noop", **using(ref))
    await world.gateway.assign(work)
    await world.gateway.until(lambda: agent._components._held[digest].pins == 2)
    await world.gateway.desire(hold_open=())
    await pass_by(world, signature=SECOND)
    blobs.open(digest)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    assert blobs.asked == [digest]


async def test_nothing_opens_while_an_attempt_waits_for_a_lane(world: "World") -> None:
    await world.worker(memory_mib=1000)
    busy = sleeping(world, FIRST, memory_mib=600)
    waiting = sleeping(world, SECOND, memory_mib=800)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    await world.gateway.assign(waiting)
    await world.gateway.phase(waiting.attempt_id, "queued")
    await world.gateway.desire(
        hold_open=(world.opening("test.noop", signature=THIRD, memory_mib=200),)
    )
    quick = sleeping(world, FIRST, params={"seconds": 0}, memory_mib=600)
    assert (await world.gateway.do(quick)).failure is None
    assert {lane.signature for lane in world.gateway.lanes} == {FIRST}
    await world.gateway.desire(cancel=(waiting.attempt_id,))
    await until_open(world, FIRST, THIRD)


async def test_room_is_made_of_idle_hosts_that_are_not_listed_and_of_no_others(
    world: "World",
) -> None:
    agent = await world.worker(memory_mib=1000)
    alike: dict[str, Any] = {"memory_mib": 300}
    for signature in (FIRST, SECOND, THIRD):
        await pass_by(world, signature=signature, **alike)
    listed = [
        world.opening("test.noop", signature=s, **alike)
        for s in (FIRST, FOURTH, digest_bytes(b"5"))
    ]
    await world.gateway.desire(hold_open=listed[:2])
    await until_open(world, FIRST, THIRD, FOURTH)  # the first was idle for longer
    await world.gateway.desire(hold_open=listed)
    await until_open(world, *(o.signature for o in listed))
    pids = {lane.process.pid for lane in agent._lanes}
    more = world.opening("test.noop", signature=SECOND, **alike)
    await world.gateway.desire(hold_open=(*listed, more))
    await pass_by(world, signature=FIRST)
    await pass_by(world, signature=FOURTH)
    assert {lane.process.pid for lane in agent._lanes} == pids


async def test_a_busy_host_is_waited_for_and_what_was_fetched_meanwhile_is_kept(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    blobs.open(digest)
    # There is no room on the disk either.
    agent = await world.worker(blobs=blobs, memory_mib=1000, cache_bytes=2)
    busy = sleeping(world, FIRST, memory_mib=800)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    held = {"m": digest}
    await world.gateway.desire(
        hold_open=(world.opening("test.noop", signature=SECOND, memory_mib=800, components=held),)
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


async def test_an_attempt_takes_the_room_of_what_is_not_listed_first_and_then_of_the_rest(
    world: "World",
) -> None:
    agent = await world.worker(memory_mib=1000)
    opening = world.opening("test.noop", signature=FIRST, memory_mib=400)
    await world.gateway.desire(hold_open=(opening,))
    await until_open(world, FIRST)
    listed = lane_of(agent, FIRST).process.pid
    await pass_by(world, signature=SECOND, memory_mib=400)
    await pass_by(world, signature=THIRD, memory_mib=400)
    await until_open(world, FIRST, THIRD)  # the second was used later
    assert lane_of(agent, FIRST).process.pid == listed
    large = sleeping(world, FOURTH, memory_mib=800)
    await world.gateway.assign(large)
    await world.gateway.phase(large.attempt_id, "running")
    await world.gateway.desire(cancel=(large.attempt_id,))
    await until_open(world, FIRST)  # its room was needed, and is free again


async def test_a_component_that_cannot_be_fetched_is_told_once_until_it_is_listed_anew(
    world: "World", caplog: pytest.LogCaptureFixture
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    (stored,) = (world.root / "store").rglob(digest)
    stored.rename(world.root / "lost")
    blobs = Gates(world.store.blobs, digest)
    blobs.open(digest)
    await world.worker(blobs=blobs)
    lost = world.opening("test.noop", signature=FIRST, components={"m": digest})
    other = world.opening("test.noop", signature=SECOND)
    with caplog.at_level(logging.WARNING, SAID):
        await world.gateway.desire(hold_open=(lost, other))
        await until_open(world, SECOND)
        (world.root / "lost").rename(stored)
        await world.gateway.desire(hold_open=(other, lost))
        await pass_by(world, signature=SECOND)
    assert blobs.asked == [digest]
    (line,) = (r for r in caplog.records if r.name == SAID)
    assert (line.signature, line.engine) == (FIRST, "test.noop")  # type: ignore[attr-defined]
    assert digest in line.reason  # type: ignore[attr-defined]
    await world.gateway.desire(hold_open=(other,))
    await world.gateway.desire(hold_open=(other, lost))
    await until_open(world, FIRST, SECOND)


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
    assert agent._lanes._count == 2


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
    assert {lane.signature for lane in agent._lanes} == {SECOND}
    await pass_by(world, signature=FIRST)  # opens it by itself, and so it is wanted again
    dead = lane_of(agent, FIRST).process.pid
    os.kill(dead, signal.SIGKILL)
    await world.gateway.until(
        lambda: [x for x in agent._lanes if x.signature == FIRST and x.process.pid not in (0, dead)]
    )
    await until_open(world, FIRST, SECOND)


async def test_a_new_list_stops_the_fetch_of_what_left_it_and_closes_nothing(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    agent = await world.worker(blobs=blobs)
    open_, fetched = (
        world.opening("test.noop", signature=FIRST),
        world.opening("test.noop", signature=SECOND, components={"m": digest}),
    )
    await world.gateway.desire(hold_open=(open_, fetched))
    await blobs.until_asked(digest)
    await until_open(world, FIRST)
    await world.gateway.desire(hold_open=(world.opening("test.noop", signature=THIRD),))
    await until_open(world, FIRST, THIRD)
    blobs.open(digest)
    await pass_by(world, signature=THIRD)
    assert not agent._components.holds(digest)
    assert {lane.signature for lane in agent._lanes} == {FIRST, THIRD}


async def test_a_host_that_waits_for_room_holds_up_no_other(world: "World") -> None:
    await world.worker(memory_mib=1000)
    busy = sleeping(world, FIRST, memory_mib=600)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    one, two = await world.model("one"), await world.model("two")
    large, small = (
        world.opening("test.noop", signature=s, memory_mib=mib, components={"m": m.artifact.digest})
        for s, mib, m in ((SECOND, 800, one), (THIRD, 200, two))
    )
    await world.gateway.desire(hold_open=(large, small))
    await until_open(world, FIRST, THIRD)
    await world.gateway.desire(cancel=(busy.attempt_id,))
    await until_open(world, SECOND, THIRD)


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
    assert [lane.isolated_for for lane in agent._lanes] == [""]


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
    assert agent._lanes._count == 1


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
    assert agent._lanes._count == 0
    world.gateway.refuse = None
    await until_open(world, FIRST)


async def test_a_host_that_an_attempt_is_about_to_use_makes_no_room_for_another(
    world: "World",
) -> None:
    ref = await world.model("m")
    digest = ref.artifact.digest
    blobs = Gates(world.store.blobs, digest)
    await world.worker(blobs=blobs, memory_mib=1000)
    await pass_by(world, signature=FIRST, memory_mib=600)
    work = world.assignment("test.noop", signature=FIRST, memory_mib=600, inputs={"m": ref})
    await world.gateway.assign(work)
    await blobs.until_asked(digest)
    opening = world.opening("test.noop", signature=SECOND, memory_mib=800)
    await world.gateway.desire(hold_open=(opening,))
    await pass_by(world, signature=THIRD, memory_mib=100)
    blobs.open(digest)
    end = await world.gateway.end(work.attempt_id)
    assert (end.failure, end.usage.load_s) == (None, 0)
    await until_open(world, SECOND)  # afterwards it may go


async def test_hosts_whose_room_does_not_suffice_stay_open(world: "World") -> None:
    agent = await world.worker(memory_mib=1000)
    busy = sleeping(world, FIRST, memory_mib=600)
    await world.gateway.assign(busy)
    await world.gateway.phase(busy.attempt_id, "running")
    await pass_by(world, signature=SECOND, memory_mib=200)
    large = world.opening("test.noop", signature=THIRD, memory_mib=800)
    await world.gateway.desire(hold_open=(large,))
    for _ in range(3):
        await pass_by(world, signature=FOURTH, memory_mib=100)
        await pass_by(world, signature=SECOND, memory_mib=200)
    assert agent._lanes._count == 3
    await world.gateway.desire(cancel=(busy.attempt_id,))
    await until_open(world, THIRD)
