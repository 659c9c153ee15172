"""What hosts ahead of work load is fetched in their order, behind attempts, and never twice."""

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

from tests.flowmesh_worker.opening import (
    FIRST,
    FOURTH,
    SAID,
    SECOND,
    THIRD,
    Gates,
    pass_by,
    until_open,
    using,
)


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
    await world.gateway.until(lambda: agent._components._trees[digest].pins == 2)
    await world.gateway.desire(hold_open=())
    await pass_by(world, signature=SECOND)
    blobs.open(digest)
    assert (await world.gateway.end(work.attempt_id)).failure is None
    assert blobs.asked == [digest]


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
