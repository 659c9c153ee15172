"""Hosts ahead of work take the room that attempts leave, and close no more than they need."""

from typing import TYPE_CHECKING, Any

from flowmesh_core.identity import digest_bytes

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

from tests.flowmesh_worker.opening import (
    FIRST,
    FOURTH,
    SECOND,
    THIRD,
    Gates,
    fetched_to,
    lane_of,
    pass_by,
    sleeping,
    until_open,
)


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
    pids = {lane.process.pid for lane in agent.hosts}
    more = world.opening("test.noop", signature=SECOND, **alike)
    await world.gateway.desire(hold_open=(*listed, more))
    await pass_by(world, signature=FIRST)
    await pass_by(world, signature=FOURTH)
    assert {lane.process.pid for lane in agent.hosts} == pids


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
    await until_open(world, SECOND, THIRD)  # afterwards it may go, and that is enough


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
    assert agent._scratch.host_folders == 3
    await world.gateway.desire(cancel=(busy.attempt_id,))
    await until_open(world, SECOND, THIRD)  # the room of the two others suffices
