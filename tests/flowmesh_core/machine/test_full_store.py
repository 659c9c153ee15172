"""A result that the store has no space for: it waits, with a reason, and is given up in the end."""

from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_api.v1.runs import StepStatus
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine.commands import Publish
from flowmesh_core.machine.events import ActionKey, CancelRequested, PublishDelayed
from flowmesh_core.status.projection import run_status

FULL = Failure(FailureKind.STORE, "the result could not be published: no space is left", "free it")
DAY_S = 86400.0


def publishing(world: World) -> tuple[str, ActionKey]:
    """A run whose only step has been run, and whose result is to be published."""
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.mute_store = True
    world.finish(only(world).attempt_id)
    [asked] = world.unanswered
    assert isinstance(asked, Publish)
    return uid, asked.key


def shown(world: World, uid: str) -> StepStatus:
    return run_status(world.machine.state, uid, world.now).steps[0]


def test_the_step_says_why_it_waits_and_the_work_is_not_done_again(world: World) -> None:
    uid, key = publishing(world)
    for _ in range(100):
        world.now += DAY_S / 101
        world.beat("w1")
        world.apply(PublishDelayed(key, FULL))
    action = world.machine.state.actions[key]
    assert action.state == "publishing"
    step = shown(world, uid)
    assert (step.state, step.reason) == ("RUNNING", "store")
    assert step.message == f"{FULL.message}; {FULL.remedy}"
    world.answer()
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert world.finals[uid].steps[0].executed == 1


def test_after_a_day_the_action_fails_and_is_not_tried_again(world: World) -> None:
    uid, key = publishing(world)
    world.apply(PublishDelayed(key, FULL))
    world.now += DAY_S
    world.beat("w1")
    world.apply(PublishDelayed(key, FULL))
    world.mute_store = False
    world.run()
    final = world.finals[uid]
    assert (final.phase, final.reason, final.remedy) == ("Failed", "store", FULL.remedy)
    assert final.message == f"{FULL.message}; it was tried for 24 h"
    assert final.steps[0].attempts == 1
    assert final.paid_nanousd == 0
    assert not world.machine.state.attempts


def test_a_cancelled_runs_result_is_settled_when_it_is_given_up(world: World) -> None:
    uid, key = publishing(world)
    world.apply(PublishDelayed(key, FULL))
    world.apply(CancelRequested(uid))
    world.now += DAY_S
    world.beat("w1")
    world.apply(PublishDelayed(key, FULL))
    world.mute_store = False
    world.run()
    assert world.finals[uid].phase == "Cancelled"
    assert not world.machine.state.attempts
