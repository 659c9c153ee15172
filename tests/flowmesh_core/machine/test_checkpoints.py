"""Where an action resumes after an attempt of it is lost, and what is recorded for that."""

import pytest
from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_core.accounting.ledger_lines import CheckpointLine, Line, decode_lines, encode_lines
from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.machine import checkpoints
from flowmesh_core.protocol.messages import Assignment, Checkpoint
from flowmesh_core.protocol.results import Usage


def only(world: World) -> Assignment:
    (assignment,) = world.attempts()
    return assignment


def begun(world: World) -> Assignment:
    """Places the one action that is ready, and has it run."""
    world.tick(0.1)
    found = only(world)
    world.begin(found.attempt_id)
    return found


def resumed(assignment: Assignment) -> str:
    return assignment.resume.artifact.digest if assignment.resume else ""


def noted(world: World, uid: str) -> list[CheckpointLine]:
    return [line for line in world.ledger.get(uid, ()) if isinstance(line, CheckpointLine)]


def roots(world: World) -> set[str]:
    return {a.digest for _, a in checkpoints.roots(world.machine.state)}


@pytest.mark.parametrize("kind", ["preempted", "drained", "host-crashed", "engine"])
def test_the_next_attempt_begins_at_the_newest_checkpoint_whatever_ended_the_last(
    world: World, kind: str
) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    assert resumed(first) == ""
    world.checkpoint(first.attempt_id, 10)
    newest = world.checkpoint(first.attempt_id, 20)
    world.fail(first.attempt_id, kind)
    world.tick(5.0)
    second = only(world)
    assert resumed(second) == newest
    world.finish(second.attempt_id)
    assert world.finals[uid].phase == "Succeeded"
    assert roots(world) == set()


def test_a_lost_workers_action_resumes_on_another_worker_from_its_checkpoint(world: World) -> None:
    world.join("w1", "w2")
    world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    newest = world.checkpoint(first.attempt_id, 10)
    holder = world.worker_of(first.attempt_id)
    world.lose(holder)
    second = begun(world)
    assert world.worker_of(second.attempt_id) != holder
    assert resumed(second) == newest


def test_an_older_or_repeated_report_changes_nothing(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    newest = world.checkpoint(first.attempt_id, 20)
    world.checkpoint(first.attempt_id, 20, digest=newest)
    world.checkpoint(first.attempt_id, 10)
    world.fail(first.attempt_id, "preempted")
    assert resumed(begun(world)) == newest
    assert len(noted(world, uid)) == 1


def test_a_damaged_checkpoint_is_dropped_and_the_next_one_counts_even_with_less_progress(
    world: World,
) -> None:
    world.join("w1")
    world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    spoiled = world.checkpoint(first.attempt_id, 20)
    world.fail(first.attempt_id, "preempted")
    second = begun(world)
    world.checkpoint(second.attempt_id, 0.0, spoiled, digest=spoiled)
    assert spoiled in world.discarded
    assert roots(world) == set()
    less = world.checkpoint(second.attempt_id, 5)
    world.fail(second.attempt_id, "preempted")
    assert resumed(begun(world)) == less


def test_the_last_try_starts_from_scratch_if_the_checkpoint_did_not_help(world: World) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=SOLO, attempts=3)))
    first = begun(world)
    newest = world.checkpoint(first.attempt_id, 10)
    found = [first]
    for _ in range(2):
        world.fail(found[-1].attempt_id, "engine")
        world.tick(5.0)
        found.append(only(world))
    assert [resumed(a) for a in found] == ["", newest, ""]
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_the_last_attempt_before_poison_starts_from_scratch_as_well(world: World) -> None:
    world.join("w0", "w1", "w2")
    world.submit(plan(step("a", uses=SOLO)))
    found = [begun(world)]
    newest = world.checkpoint(found[0].attempt_id, 10)
    for _ in range(2):
        world.lose(world.worker_of(found[-1].attempt_id))
        found.append(begun(world))
    assert [resumed(a) for a in found] == ["", newest, ""]


def test_an_action_without_progress_between_losses_is_poison_and_one_with_progress_is_not(
    world: World,
) -> None:
    uid = world.submit(plan(step("a", uses=SOLO)))
    for n in range(5):
        world.join(f"w{n}")
        world.checkpoint(begun(world).attempt_id, n + 1)
        world.lose(f"w{n}")
    assert not world.finals
    for n in range(5, 7):
        world.join(f"w{n}")
        begun(world)
        world.lose(f"w{n}")
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "poison")


def test_checkpoints_are_written_to_the_ledger_a_few_times_a_minute_and_at_an_attempts_end(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    for n in range(600):
        world.now += 0.1
        world.checkpoint(first.attempt_id, n + 1)
        world.tick()
    assert 3 <= len(noted(world, uid)) <= 4
    assert roots(world) == {only_checkpoint(world)}
    world.fail(first.attempt_id, "preempted")
    assert noted(world, uid)[-1].done == 600


def test_a_checkpoint_too_early_for_the_ledger_is_written_after_the_interval(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    world.checkpoint(first.attempt_id, 1)
    world.checkpoint(first.attempt_id, 2)
    assert [line.done for line in noted(world, uid)] == [1]
    for _ in range(5):
        world.now += 5
        world.beat()
        world.tick()
    assert [line.done for line in noted(world, uid)] == [1, 2]


def only_checkpoint(world: World) -> str:
    (action,) = world.machine.state.actions.values()
    assert action.checkpoint is not None
    return action.checkpoint.digest


def written(world: World, uid: str) -> tuple[Line, ...]:
    """The ledger as a restart reads it."""
    return tuple(decode_lines(encode_lines(world.ledger[uid])))


def test_a_restart_resumes_from_the_ledgers_checkpoint_and_retains_nothing_at_the_end(
    world: World,
) -> None:
    world.join("w1")
    made = plan(step("a", uses=SOLO))
    uid = world.submit(made)
    first = begun(world)
    newest = world.checkpoint(first.attempt_id, 10)
    after = World(epoch=2, recovering_until_s=world.now + 3.0, now=world.now)
    after.left = world.left
    after.mute_store = True
    after.submit(made, uid, restored=written(world, uid))
    assert roots(after) == {newest}, "kept while nothing is known of the action yet"
    after.answer()
    after.join("w2")
    after.tick(3.5)
    again = only(after)
    assert resumed(again) == newest
    after.finish(again.attempt_id)
    assert after.finals[uid].phase == "Succeeded"
    assert roots(after) == set()


def test_after_a_restart_a_workers_report_is_newer_than_the_ledger(world: World) -> None:
    world.join("w1")
    made = plan(step("a", uses=SOLO))
    uid = world.submit(made)
    first = begun(world)
    world.checkpoint(first.attempt_id, 10)
    after = World(epoch=2, recovering_until_s=world.now + 3.0, now=world.now)
    newest = Checkpoint(first.attempt_id, first.action_id, 15.0)
    after.left[newest.digest] = newest.digest
    after.held = {"w1": {first.attempt_id: first}}
    after.incarnations["w1"] = "w1-again"
    after.hello("w1", checkpoints=(newest,))
    after.submit(made, uid, restored=written(world, uid))
    after.tick(3.5)
    after.fail(first.attempt_id, "preempted")
    after.tick(0.1)
    assert resumed(only(after)) == newest.digest


def test_the_checkpoint_of_a_cancelled_run_is_garbage_unless_another_run_subscribes(
    world: World,
) -> None:
    from flowmesh_core.machine.events import CancelRequested

    world.join("w1")
    first = world.submit(plan(step("a", uses=SOLO)))
    second = world.submit(plan(step("b", uses=SOLO)))
    kept = world.checkpoint(begun(world).attempt_id, 10)
    assert len(noted(world, first)) == len(noted(world, second)) == 1
    world.apply(CancelRequested(first))
    assert roots(world) == {kept}
    world.apply(CancelRequested(second))
    assert roots(world) == set()


def test_a_resumed_attempt_is_not_used_to_learn_durations(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a", uses=SOLO, value=1)))
    first = begun(world)
    key = CostKey.of(next(iter(world.machine.state.signatures.values())))

    def learned() -> int:
        return world.machine.state.model.predict(
            key, "cpu", next(iter(world.machine.state.actions.values())).spec.work
        ).samples

    world.checkpoint(first.attempt_id, 10)
    world.fail(first.attempt_id, "preempted")
    second = begun(world)
    world.mute_store = True
    world.finish(second.attempt_id, usage=Usage(units=1, run_s=0.1, resumed=True))
    assert learned() == 0
    world.answer()
    world.submit(plan(step("a", uses=SOLO, value=2)))
    third = begun(world)
    world.mute_store = True
    world.finish(third.attempt_id, usage=Usage(units=1, run_s=0.1))
    assert learned() == 1
    world.answer()


def test_a_resumed_run_pays_only_for_the_attempt_that_gave_the_result(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", uses=SOLO)))
    first = begun(world)
    world.now += 10
    world.checkpoint(first.attempt_id, 10)
    world.fail(first.attempt_id, "preempted")
    second = begun(world)
    world.now += 1
    world.finish(second.attempt_id)
    paid = world.finals[uid].paid_nanousd
    assert 0 < paid < 2_000_000
    assert world.machine.state.book.fabric_nanousd >= 10_000_000
