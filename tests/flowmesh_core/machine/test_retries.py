"""What an engine error, a fault of the step and a late end come to."""

import pytest
from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_core.protocol.messages import AttemptEnd


def test_an_engine_error_is_retried_with_backoff_on_another_worker_first(
    world: World,
) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    first = only(world)
    holder = world.worker_of(first.attempt_id)
    world.fail(first.attempt_id, "engine")
    world.tick(0.1)
    assert not world.attempts(), "the backoff has not passed"
    world.tick(1.0)
    assert world.worker_of(only(world).attempt_id) != holder
    world.fail(only(world).attempt_id, "engine")
    world.tick(2.1)
    world.fail(only(world).attempt_id, "engine", message="the engine broke")
    final = world.finals[uid]
    assert (final.phase, final.reason, final.message) == ("Failed", "engine", "the engine broke")
    assert final.steps[0].attempts == 3


@pytest.mark.parametrize("kind", ["bad-input", "user-code", "timeout"])
def test_a_failure_caused_by_the_step_is_not_retried_and_its_run_pays(
    world: World, kind: str
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    world.now += 1
    world.fail(only(world).attempt_id, kind)
    final = world.finals[uid]
    assert (final.phase, final.reason) == ("Failed", kind)
    assert final.paid_nanousd == pytest.approx(1_000_000, rel=0.2)


def test_a_late_end_of_an_action_that_is_published_changes_nothing(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    attempt = only(world)
    world.finish(attempt.attempt_id)
    before = len(world.publications)
    end = AttemptEnd(attempt.attempt_id, attempt.action_id)
    world._sync("w1", ended=(end,))
    assert len(world.publications) == before


def test_a_tenant_pays_for_failed_tries_beyond_twenty_a_day(
    world: World,
) -> None:
    world.join("w1")

    def failed(uid: str) -> int:
        world.submit(plan(step("a", attempts=1)), uid)
        world.tick(0.1)
        world.begin(only(world).attempt_id)
        world.tick(1.0)
        world.beat()
        world.fail(only(world).attempt_id, "engine")
        return world.finals[uid].paid_nanousd

    paid = [failed(f"r{n}") for n in range(22)]
    assert not any(paid[:20])
    assert all(paid[20:])
    world.lose("w1")
    world.now += 86_400.0
    world.join("w1")
    assert not failed("tomorrow")
