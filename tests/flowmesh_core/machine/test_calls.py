"""Calls to the outside world that must not be repeated are not."""

import pytest
from tests.flowmesh_core.machine.world import CALL, World, only, plan, step


@pytest.mark.parametrize("kind", ["engine", "preempted", "drained", "host-crashed", "store"])
def test_a_started_call_that_must_not_be_repeated_is_not_repeated_after_any_failure(
    world: World, kind: str
) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, kind, run_s=0.5)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", kind)
    assert "may have been made" in world.finals[uid].message


def test_a_call_whose_worker_is_lost_is_not_repeated(world: World) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.lose(world.worker_of(only(world).attempt_id))
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "lost")


def test_a_call_that_never_started_or_is_idempotent_is_made_on_another_worker(
    world: World,
) -> None:
    world.join("w1", "w2")
    fresh = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "drained")
    world.run()
    assert world.finals[fresh].phase == "Succeeded"
    safe = world.submit(plan(step("b", uses=CALL, safe=True)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "engine", run_s=0.5)
    world.tick(2.0)
    world.run()
    assert world.finals[safe].phase == "Succeeded"
