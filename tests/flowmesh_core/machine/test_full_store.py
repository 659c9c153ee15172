"""A result that the store has no space for: it waits, with a reason, and is given up in the end."""

from tests.flowmesh_core.machine.world import SOLO, World, only, plan, step

from flowmesh_api.v1.runs import StepStatus
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine.commands import Publish
from flowmesh_core.machine.events import (
    ActionKey,
    CancelRequested,
    PublishDelayed,
    Published,
    PublishFailed,
)
from flowmesh_core.machine.pending_publications import FULL_FOR_S
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.messages import Assignment
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


def test_the_step_shows_why_it_waits_and_its_work_is_not_repeated(world: World) -> None:
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


def waiting(world: World, count: int) -> list[str]:
    """As many runs, whose results wait for an answer of the store; their uids."""
    world.join("w1", cpus=64)
    uids = [world.submit(plan(step("a", value=n))) for n in range(count)]
    world.tick(0.1)
    world.mute_store = True
    for assignment in world.attempts():
        world.finish(assignment.attempt_id)
    assert len(world.unanswered) == count
    return uids


def publications(world: World) -> list[Publish]:
    return [command for command in world.unanswered if isinstance(command, Publish)]


def two_of_one_action(world: World) -> tuple[list[str], list[Publish]]:
    """A cancelled run and an equal one, whose attempts' results wait for space, in this order."""
    first, _ = publishing(world)
    world.mute_store = False
    asked = world.unanswered
    world.apply(CancelRequested(first))
    second = world.submit(plan(step("a")))
    world.tick(0.1)
    world.mute_store = True
    world.finish(only(world).attempt_id)
    found = [command for command in asked if isinstance(command, Publish)]
    assert len(found) == 2
    assert found[0].key == found[1].key
    return [first, second], found


def made_by(publish: Publish) -> str:
    return publish.result.provenance.attempt_id


def test_a_delayed_result_is_distinguished_from_another_of_its_action(world: World) -> None:
    uids, (old, new) = two_of_one_action(world)
    world.apply(PublishDelayed(old.key, FULL, made_by(old)))
    assert shown(world, uids[1]).reason == ""
    world.apply(PublishDelayed(new.key, FULL, made_by(new)))
    assert shown(world, uids[1]).reason == "store"


def test_a_refused_result_settles_its_own_attempt(world: World) -> None:
    uids, (old, _) = two_of_one_action(world)
    world.apply(PublishFailed(old.key, FULL, made_by(old)))
    assert world.finals[uids[0]].phase == "Cancelled"
    assert shown(world, uids[1]).state == "RUNNING"
    world.answer()
    assert world.finals[uids[1]].phase == "Succeeded"
    assert world.finals[uids[1]].steps[0].attempts == 0


def test_a_published_result_settles_its_own_attempt(world: World) -> None:
    uids, (old, new) = two_of_one_action(world)
    world.apply(Published(old.key, old.result, adopted=False))
    assert world.finals[uids[0]].phase == "Cancelled"
    assert list(world.machine.state.attempts) == [made_by(new)]
    adopted = Published(new.key, old.result, adopted=True, attempt_id=made_by(new))
    world.mute_store = False
    world.apply(adopted)
    assert world.finals[uids[1]].phase == "Succeeded"
    assert not world.machine.state.attempts
    # The cancelled run pays for its own attempt, which ran; so it counts there and in the sum.
    assert [world.finals[uid].executed for uid in uids] == [1, 1]
    assert world.machine.state.book.executed == 2


def test_an_answer_for_an_attempt_that_was_given_up_changes_nothing(world: World) -> None:
    uids, (old, new) = two_of_one_action(world)
    world.apply(PublishFailed(old.key, FULL, made_by(old)))
    foreign = Published(old.key, new.result, adopted=True, attempt_id=made_by(old))
    world.apply(foreign)
    world.apply(PublishDelayed(old.key, FULL, made_by(old)))
    assert list(world.machine.state.attempts) == [made_by(new)]
    assert shown(world, uids[1]).reason == ""


def test_all_waiting_results_show_the_reason_even_if_only_one_was_tried(world: World) -> None:
    uids = waiting(world, 3)
    asked = publications(world)
    world.apply(PublishDelayed(asked[0].key, FULL, made_by(asked[0])))
    world.tick(0.25)
    assert [shown(world, uid).reason for uid in uids] == ["store"] * 3
    world.answer()
    world.run()
    assert {final.phase for final in world.finals.values()} == {"Succeeded"}


def test_a_result_that_waits_for_a_store_with_space_gives_no_reason(world: World) -> None:
    (uid,) = waiting(world, 1)
    world.tick(5)
    assert shown(world, uid).reason == ""


def test_the_reason_is_removed_when_the_store_no_longer_refuses_for_lack_of_space(
    world: World,
) -> None:
    uid, key = publishing(world)
    world.apply(PublishDelayed(key, FULL))
    assert shown(world, uid).reason == "store"
    world.tick(FULL_FOR_S + 1.0)
    assert shown(world, uid).reason == ""


def test_all_waiting_results_are_given_up_in_time_even_if_only_one_was_tried() -> None:
    world = World(Settings(watchdog_s=1e9, publish_patience_s=300.0))
    uids = waiting(world, 3)
    asked = publications(world)[0]
    world.apply(PublishDelayed(asked.key, FULL, made_by(asked)))
    world.tick(0.25)
    for _ in range(10):
        world.tick(29.0)
        world.apply(PublishDelayed(asked.key, FULL, made_by(asked)))
    assert not world.finals
    world.tick(11.0)
    assert [world.finals[uid].reason for uid in uids] == ["store"] * 3
    assert not world.machine.state.attempts


def test_no_result_is_given_up_while_the_store_does_not_respond(world: World) -> None:
    uid, key = publishing(world)
    world.apply(PublishDelayed(key, FULL))
    world.tick(2 * DAY_S)
    world.beat()
    world.tick(1)
    world.answer()
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def with_replica(world: World, budget_nanousd: int = 0) -> tuple[str, Assignment, ActionKey]:
    """A run whose step has two attempts, one of which waits for space; and the other one."""
    world.join("w1", "w2")
    for n in range(3):
        world.submit(plan(step("a", uses=SOLO, value=n)), f"before-{n}")
    world.run()
    uid = world.submit(plan(step("a", uses=SOLO), budget_nanousd=budget_nanousd))
    world.tick(0.1)
    slow = only(world)
    world.begin(slow.attempt_id)
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()
    (replica,) = (a for a in world.attempts() if a.attempt_id != slow.attempt_id)
    world.begin(replica.attempt_id)
    world.mute_store = True
    world.finish(replica.attempt_id)
    return uid, slow, publications(world)[0].key


def test_a_replica_stops_while_the_result_waits_for_space(world: World) -> None:
    uid, slow, key = with_replica(world)
    assert world.attempts() == [slow]
    world.apply(PublishDelayed(key, FULL))
    assert not world.attempts()
    world.answer()
    assert world.finals[uid].phase == "Succeeded"


def test_a_run_whose_result_waits_does_not_fail_for_its_budget(world: World) -> None:
    uid, slow, key = with_replica(world, budget_nanousd=10_000_000_000)
    world.deaf.add(world.worker_of(slow.attempt_id))
    world.apply(PublishDelayed(key, FULL))
    for _ in range(1200):
        world.now += 9
        world.beat()
    world.tick()
    (other,) = (a for a in world.machine.state.attempts.values() if a.end is None)
    assert other.charged_nanousd > 10_000_000_000
    world.answer()
    assert world.finals[uid].phase == "Succeeded"


def test_a_result_is_given_up_permanently_even_if_a_replica_still_runs() -> None:
    world = World(Settings(watchdog_s=1e9))
    uid, slow, key = with_replica(world)
    world.deaf.add(world.worker_of(slow.attempt_id))
    world.apply(PublishDelayed(key, FULL))
    world.now += DAY_S
    world.apply(PublishDelayed(key, FULL))
    world.mute_store = False
    world.tick(1)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "store")
    world.fail(slow.attempt_id, "cancelled")
    assert not world.machine.state.actions


def test_a_cancelled_run_stays_cancelled_if_its_deadline_passes_while_it_waits(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a"), deadline_s=3600.0))
    world.tick(0.1)
    world.mute_store = True
    world.finish(only(world).attempt_id)
    world.apply(CancelRequested(uid, "not needed"))
    world.beat()
    world.tick(3601)
    world.answer()
    final = world.finals[uid]
    assert (final.phase, final.reason, final.message) == ("Cancelled", "", "not needed")


def test_a_failed_step_shows_nothing_of_another_runs_attempt_of_its_action(world: World) -> None:
    world.join("w1", "w2")
    failed = world.submit(plan(step("a"), step("b", value=2)))
    world.tick(0.1)
    (mine,) = (a for a in world.attempts() if "value" not in a.params)
    world.fail(mine.attempt_id, "user-code")
    world.submit(plan(step("a")))
    world.tick(0.1)
    (again,) = (a for a in world.attempts() if "value" not in a.params)
    world.begin(again.attempt_id)
    step_status = shown(world, failed)
    assert (step_status.state, step_status.workers, step_status.doing) == ("FAILED", (), "")
    world.mute_store = True
    world.finish(again.attempt_id)
    world.apply(PublishDelayed(publications(world)[0].key, FULL))
    step_status = shown(world, failed)
    assert (step_status.state, step_status.reason) == ("FAILED", "user-code")
    assert step_status.message == "broken"


def test_no_new_work_starts_while_too_many_results_wait_for_space() -> None:
    world = World(Settings(watchdog_s=1e9, results_waiting_max=2))
    waiting(world, 3)
    asked = publications(world)[0]
    world.mute_store = False
    world.apply(PublishDelayed(asked.key, FULL))
    late = world.submit(plan(step("late", value="late")))
    world.tick(0.25)
    assert not world.attempts()
    step_status = shown(world, late)
    assert (step_status.state, step_status.reason) == ("READY", "store")
    assert "no space is left" in step_status.message
    assert FULL.remedy in step_status.message
    world.answer()
    world.tick(0.25)
    assert [a.params for a in world.attempts()] == [{"value": "late"}]
    world.run()
    assert {final.phase for final in world.finals.values()} == {"Succeeded"}


def test_work_continues_while_a_few_results_wait_for_space() -> None:
    world = World(Settings(watchdog_s=1e9, results_waiting_max=2))
    waiting(world, 2)
    world.apply(PublishDelayed(publications(world)[0].key, FULL))
    world.mute_store = False
    world.submit(plan(step("late", value="late")))
    world.tick(0.25)
    assert len(world.attempts()) == 1
