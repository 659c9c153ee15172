"""Stragglers get a replica; whoever publishes first wins."""

import pytest
from tests.flowmesh_core.machine.world import SOLO, World, only, plan, step

from flowmesh_core.protocol.messages import LogLine


def submit_known(world: World, *workers: str) -> str:
    """Submits a run of a kind that the cost model has seen three times; returns its uid."""
    world.join(*workers)
    for n in range(3):
        world.submit(plan(step("a", uses=SOLO, value=n)), f"before-{n}")
    world.run()
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    return uid


def pass_20_s(world: World) -> None:
    """Lets so much time pass that an attempt which runs all along is a straggler."""
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()


def test_a_straggler_gets_a_replica_the_first_publication_wins_and_the_fabric_pays_the_loser(
    world: World,
) -> None:
    uid = submit_known(world, "w1", "w2")
    slow = only(world)
    holder = world.worker_of(slow.attempt_id)
    world.begin(slow.attempt_id)
    published = len(world.publications)
    pass_20_s(world)
    assert len(world.attempts()) == 2
    replica = next(a for a in world.attempts() if a.attempt_id != slow.attempt_id)
    assert world.worker_of(replica.attempt_id) != holder
    world.begin(replica.attempt_id)
    world.now += 1
    world.finish(replica.attempt_id)
    final = world.finals[uid]
    assert final.phase == "Succeeded"
    assert not world.attempts(), "the loser was told to stop"
    assert len(world.publications) == published + 1


def test_an_attempt_that_stores_its_outputs_gets_no_replica(world: World) -> None:
    uid = submit_known(world, "w1", "w2")
    attempt = only(world)
    world.begin(attempt.attempt_id)
    world.stores(attempt.attempt_id)
    pass_20_s(world)
    world.finish(only(world).attempt_id)
    assert world.finals[uid].phase == "Succeeded"


def test_an_action_that_is_lost_while_its_replica_waits_for_a_worker_is_tried_again(
    world: World,
) -> None:
    world.join("small", device_memory_mib=1)
    uid = submit_known(world, "w1")
    slow = only(world)
    world.begin(slow.attempt_id)
    pass_20_s(world)
    assert world.machine.state.replicas, "the worker that idles is too small for it"
    world.lose("w1")
    world.join("w2")
    world.run()
    assert world.finals[uid].phase == "Succeeded"


@pytest.mark.parametrize("then", ["says how far it is", "ends", "fails", "is lost", "prints"])
def test_a_straggler_that_wakes_after_its_run_is_over_changes_nothing(
    world: World, then: str
) -> None:
    uid = submit_known(world, "w1", "w2")
    slow = only(world)
    holder = world.worker_of(slow.attempt_id)
    world.begin(slow.attempt_id)
    world.deaf.add(holder)
    pass_20_s(world)
    replica = next(a for a in world.attempts() if a.attempt_id != slow.attempt_id)
    world.finish(replica.attempt_id)
    assert world.finals[uid].phase == "Succeeded"
    published, cache = list(world.publications), dict(world.cache)
    match then:
        case "says how far it is":
            world.begin(slow.attempt_id, units=3)
        case "prints":
            world._sync(holder, logs=(LogLine(slow.attempt_id, world.now, "late"),))
        case "ends":
            world.finish(slow.attempt_id)
        case "fails":
            world.fail(slow.attempt_id, "engine")
        case _:
            world.lose(holder)
    world.tick(1.0)
    assert (world.publications, world.cache) == (published, cache)


def test_an_attempt_of_a_kind_that_was_never_seen_gets_no_replica(world: World) -> None:
    world.join("w1", "w2")
    world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    pass_20_s(world)
    only(world)
