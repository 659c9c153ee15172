"""Conditions are evaluated outside the machine; what happens meanwhile, and after a restart."""

import pytest
from tests.flowmesh_core.machine.world import MAP, World, after, dataset, only, plan, rows_of, step

from flowmesh_core.accounting.ledger_lines import ConditionLine, decode_lines, encode_lines
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.graph import conditions as graph_conditions
from flowmesh_core.graph.conditions import ConditionVerdict
from flowmesh_core.graph.evaluation_budget import RUN_STEPS, STEPS_MAX
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.status.projection import run_status

READS_A = {"when": "steps['a'].metrics.value > 0", "when_steps": ("a",)}


def stopped() -> World:
    world = World(evaluators_stopped=True)
    world.join("w1")
    return world


def asked(world: World) -> list[c.EvaluateCondition]:
    return [one for one in world.unanswered if isinstance(one, c.EvaluateCondition)]


def test_a_step_is_pending_until_its_condition_is_evaluated_and_other_steps_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = stopped()
    with monkeypatch.context() as patched:
        patched.setattr(graph_conditions, "evaluate", None)  # the machine has no use for it
        uid = world.submit(plan(step("a", value=1), step("b", **READS_A), step("c", *after("a"))))
        world.tick(0.5)
        world.finish(only(world).attempt_id)
        (command,) = asked(world)
        assert (command.uid, command.query.text) == (uid, READS_A["when"])
        assert command.query.steps["a"] is not None
        assert command.query.steps["a"]["metrics"]["value"] == 1
        shown = run_status(world.machine.state, uid, world.now).steps[1]
        assert (shown.state, shown.reason) == ("PENDING", "condition")
        assert shown.message == "its condition is being evaluated"
        world.tick(0.5)
        world.finish(only(world).attempt_id)
        assert {p: s.state for p, s in world.machine.state.runs[uid].steps.items()} == {
            "a": "COMPLETED",
            "b": "PENDING",
            "c": "COMPLETED",
        }
    world.answer()
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert world.evaluated == [READS_A["when"]]


def test_a_run_that_is_cancelled_meanwhile_ends_and_the_late_answer_changes_nothing() -> None:
    world = stopped()
    uid = world.submit(plan(step("a", when="true")))
    (command,) = asked(world)
    world.apply(e.CancelRequested(uid))
    assert world.finals[uid].phase == "Cancelled"
    world.apply(e.ConditionEvaluated(uid, command.number, ConditionVerdict(holds=True)))
    assert not world.machine.state.runs
    assert not world.attempts()


def test_a_failed_evaluation_fails_only_that_step() -> None:
    world = stopped()
    broken = world.submit(plan(step("a", when="true"), step("b")))
    other = world.submit(plan(step("a", when="true", value=1), namespace="team-b"))
    failure = Failure(FailureKind.BAD_INPUT, "the condition 'true' could not be evaluated", "other")
    command = asked(world)[0]
    world.apply(e.ConditionEvaluated(broken, command.number, ConditionVerdict(failure=failure)))
    world.unanswered.remove(command)
    world.answer()
    world.run()
    ended = {s.path: (s.state, s.message) for s in world.finals[broken].steps}
    assert ended == {"a": ("FAILED", failure.message), "b": ("COMPLETED", "")}
    assert world.finals[other].phase == "Succeeded"


def test_a_restart_reads_the_results_and_evaluates_nothing_again() -> None:
    world = World()
    world.join("w1")
    steps = (
        step("a", value=1),
        step("yes", **READS_A),
        step("no", when="steps['a'].metrics.value > 1", when_steps=("a",)),
        step("wrong", when="steps['a'].metrics.value + 1", when_steps=("a",)),
    )
    uid = world.submit(plan(*steps))
    world.tick(0.5)
    world.finish(only(world).attempt_id)
    assert len(world.evaluated) == 3
    lines = decode_lines(encode_lines(world.ledger[uid]))
    kept = [line for line in lines if isinstance(line, ConditionLine)]
    assert [(k.step, k.holds, bool(k.message)) for k in kept] == [
        ("yes", True, False),
        ("no", False, False),
        ("wrong", False, True),
    ]
    spent = world.machine.state.runs[uid].conditions.spent
    assert spent == sum(k.evaluation_steps for k in kept) > 0
    later = World(epoch=2, cache=world.cache)
    later.join("w1")
    later.submit(plan(*steps), uid, restored=tuple(lines))
    assert later.evaluated == []
    assert later.machine.state.runs[uid].conditions.spent == spent
    later.run()
    states = {s.path: s.state for s in later.finals[uid].steps}
    assert states == {"a": "COMPLETED", "yes": "COMPLETED", "no": "SKIPPED", "wrong": "FAILED"}


def test_a_restart_without_the_result_evaluates_and_one_of_other_values_too() -> None:
    world = stopped()
    uid = world.submit(plan(step("a", value=1), step("b", **READS_A)))
    world.tick(0.5)
    world.finish(only(world).attempt_id)
    assert asked(world)
    without = World(epoch=2, cache=world.cache)
    without.submit(plan(step("a", value=1), step("b", **READS_A)), uid)
    assert without.evaluated == [READS_A["when"]]
    world.answer()
    changed = World(epoch=2)
    changed.join("w1")
    changed.submit(
        plan(step("a", value=2), step("b", **READS_A)), uid, restored=tuple(world.ledger[uid])
    )
    changed.run()
    assert changed.evaluated == [READS_A["when"]]


def test_a_verdict_based_on_a_lost_result_does_not_count() -> None:
    world = stopped()
    rows = dataset("one")
    counted = {"when": "steps['a'].rows.count > 0", "when_steps": ("a",)}
    steps = (
        step("a", rows_of(rows), uses=MAP),
        step("b", *after("c"), **counted),
        step("c", rows_of("a"), uses=MAP, value=1),
    )
    uid = world.submit(plan(*steps, step("d", **counted)), artifacts=[rows])
    world.tick(0.5)
    world.finish(only(world).attempt_id)
    (first,) = asked(world)
    world.unanswered.clear()
    lost = world.machine.state.runs[uid].steps["a"].outputs["rows"]
    assert lost is not None
    world.tick(0.5)
    world.fail(only(world).attempt_id, "missing-blob", lost.blob)  # c has lost its input
    world.apply(e.ConditionEvaluated(uid, first.number, ConditionVerdict(holds=False)))
    world.answer()
    world.run()
    assert {s.state for s in world.finals[uid].steps} == {"COMPLETED"}
    assert world.evaluated == [counted["when"]] * 2


def test_as_many_conditions_are_evaluated_concurrently_as_the_budget_certainly_allows() -> None:
    world = stopped()
    uid = world.submit(plan(*(step(f"s{n}", when="1 + 1 == 2") for n in range(100))))
    at_once = (RUN_STEPS + 100 * 50) // STEPS_MAX
    assert len(asked(world)) == at_once < 100
    world.answer()
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert len(world.evaluated) == 100


def test_a_repinned_run_ignores_the_answers_to_its_former_plan() -> None:
    world = stopped()
    made = plan(step("a", when="true"))
    uid = world.submit(made)
    (command,) = asked(world)
    run = world.machine.state.runs[uid]
    event = e.Submitted(uid, made, run.created_s, run.scopes, {}, restored=tuple(run.lines))
    world.apply(e.Repinned(event, f"runs/{uid}/repins/1", {}))
    world.apply(e.ConditionEvaluated(uid, command.number, ConditionVerdict(holds=False)))
    assert world.machine.state.runs[uid].steps["a"].state == "PENDING"
    world.unanswered.remove(command)
    world.answer()
    world.run()
    assert world.finals[uid].steps[0].state == "COMPLETED"
