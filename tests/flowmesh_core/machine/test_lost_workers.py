"""Attempts of lost workers run elsewhere; an action that ends three workers is poison."""

import pytest
from tests.flowmesh_core.machine.world import SOLO, World, only, plan, step

from flowmesh_core.machine import commands as c
from flowmesh_core.machine.events import WorkerLost


def test_a_lost_worker_returns_its_action_at_once_and_after_a_second_loss_it_runs_alone(
    world: World,
) -> None:
    world.join("w1", "w2", "w3")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    holders = set()
    for isolate in (False, False, True):
        running = only(world)
        assert running.isolate == isolate
        holders.add(world.worker_of(running.attempt_id))
        if isolate:
            break
        world.begin(running.attempt_id)
        world.lose(world.worker_of(running.attempt_id))
        assert world.machine.state.runs[uid].steps["a"].state == "READY"
        world.tick(0.1)
    assert len(holders) == 3
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_worker_that_is_silent_beyond_the_watchdog_is_lost(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    world.tick(9.0)
    assert "w1" in world.machine.state.workers
    world.tick(2.0)
    assert "w1" not in world.machine.state.workers


def test_the_third_loss_is_poison_and_the_losses_are_paid_by_the_fabric(world: World) -> None:
    uid = world.submit(plan(step("a")))
    for n in range(3):
        world.join(f"w{n}")
        world.tick(0.1)
        world.begin(only(world).attempt_id)
        world.now += 1
        world.lose(f"w{n}")
    final = world.finals[uid]
    assert (final.phase, final.reason) == ("Failed", "poison")
    assert final.paid_nanousd == 0
    assert world.machine.state.book.fabric_nanousd > 0


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_an_action_that_ran_beside_poison_is_not_poison(workers: int, world: World) -> None:
    world.join(*(f"w{n}" for n in range(workers)))
    bad = world.submit(plan(step("bad"), namespace="team-a"))
    good = world.submit(plan(step("good", uses=SOLO), namespace="team-b"))
    for _ in range(8):
        world.tick(2.0)
        world.beat()
        for running in world.attempts():
            world.begin(running.attempt_id)
        for worker, held in list(world.held.items()):
            if any(a.engine != SOLO.name for a in held.values()):
                world.lose(worker)
                world.join(worker)
            elif bad in world.finals:
                for attempt_id in list(held):
                    world.finish(attempt_id)
    assert world.finals[bad].reason == "poison"
    assert world.finals[good].phase == "Succeeded"


def test_an_attempt_whose_worker_returns_with_it_loses_nothing(world: World) -> None:
    world.join("w")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    for _ in range(4):
        world.apply(WorkerLost("w", "no synchronisation within the watchdog"))
        world.now += 3.0
        world.hello("w")
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_preemption_and_drain_do_not_use_up_tries(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", attempts=1)))
    for kind in ("preempted", "drained", "preempted", "drained"):
        world.tick(1)
        world.fail(only(world).attempt_id, kind)
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_attempts_that_return_after_a_newer_one_was_sent_do_not_continue(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    gone = {}
    for name, other in (("w1", "w2"), ("w2", "w3")):
        gone[name] = dict(world.held[name])
        world.lose(name)
        world.join(other)
        world.now += 5
        world.tick(0.1)
    assert only(world).attempt_id in world.held["w3"]
    kept: list[str] = []
    do = world._do
    world._do = lambda command: (  # type: ignore[method-assign]
        kept.extend(command.keep) if isinstance(command, c.ConfirmAttempts) else None,
        do(command),
    )[1]
    for name, held in gone.items():
        world.held[name] = held
        world.hello(name)
    assert kept == []
    assert not world.machine.state.orphaned_attempts


def test_a_lost_worker_does_not_use_up_the_only_try_of_a_step(world: World) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", attempts=1)))
    world.tick(0.1)
    lost = only(world)
    world.begin(lost.attempt_id)
    world.lose(world.worker_of(lost.attempt_id))
    assert world.machine.state.runs[uid].steps["a"].state == "READY"
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_three_lost_workers_are_poison_however_many_tries_a_step_has(world: World) -> None:
    uid = world.submit(plan(step("a", attempts=1)))
    for n in range(3):
        assert uid not in world.finals
        world.join(f"w{n}")
        world.tick(0.1)
        world.begin(only(world).attempt_id)
        world.lose(f"w{n}")
    assert world.finals[uid].reason == "poison"
