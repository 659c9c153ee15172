"""A run that was cancelled before it was taken up: it ends, and nothing of it is evaluated."""

from typing import Any, NoReturn

import pytest
from tests.flowmesh_core.machine.world import World, after, plan, step

from flowmesh_api.v1.enums import StepState
from flowmesh_core.accounting.ledger_lines import PINS, AmendmentLine, Line, StepLine
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e

PLAN = plan(
    step("a"),
    step("b", *after("a")),
    step("c", when="steps['b'].metrics.value > 1", when_steps=("b",)),
    outputs={"x": (StepSource("a", "metrics"),)},
)


@pytest.fixture(autouse=True)
def _nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a condition was evaluated")

    monkeypatch.setattr("flowmesh_core.graph.conditions.evaluate", refused)


def _half_done(world: World) -> tuple[Line, ...]:
    """The ledger of a run whose first step has completed."""
    world.join("w1")
    uid = world.submit(PLAN)
    world.run(until=lambda w: w.machine.state.runs[uid].steps["a"].ended)
    return tuple(world.machine.state.runs[uid].lines)


def test_a_run_cancelled_at_start_ends_at_once_with_its_completed_steps_and_payments(
    world: World,
) -> None:
    lines = _half_done(world)
    later = World()
    uid = later.submit(PLAN, cancelled="its object was deleted", restored=lines)
    final = later.finals[uid]
    assert (final.phase, final.message) == ("Cancelled", "its object was deleted")
    states = {s.path: s.state for s in final.steps}
    assert states == {"a": "COMPLETED", "b": "CANCELLED", "c": "CANCELLED"}
    assert final.paid_nanousd > 0
    assert final.outputs["x"] is not None
    assert not later.machine.state.runs
    assert not later.machine.state.actions


def test_a_run_cancelled_at_start_causes_no_look_up_and_no_assignment(world: World) -> None:
    event = e.Submitted("u", PLAN, 0.0, *_scopes(world), cancelled="enough")
    commands = world.machine.apply(event, world.now)
    assert {type(command) for command in commands} <= {
        c.AppendLedgerLine,
        c.FinalizeRun,
        c.RunChanged,
    }
    ends = [
        x.line
        for x in commands
        if isinstance(x, c.AppendLedgerLine) and isinstance(x.line, StepLine)
    ]
    assert {line.state for line in ends} == {StepState.CANCELLED}


def test_steps_that_ended_under_an_earlier_plan_do_not_count_for_a_repinned_run(
    world: World,
) -> None:
    lines = (*_half_done(world), AmendmentLine(world.now, {PINS: "runs/u/repins/2-1"}))
    later = World()
    uid = later.submit(PLAN, cancelled="enough", restored=lines)
    assert {s.state for s in later.finals[uid].steps} == {"CANCELLED"}


def _scopes(world: World) -> tuple[Any]:
    uid = world.submit(plan(step("other")))
    return (world.machine.state.runs[uid].scopes,)
