"""Attacker: T1, a tenant that may create workflows.

Action: writes conditions that would take ages or gigabytes, or raise what nobody expects.
Must not happen: the evaluation takes more than its steps, or anything but a failed step comes out.
"""

from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
from tests.attacks.one_fabric import fabric_at
from tests.flowmesh_control.fabric import machine_of, workflow
from tests.flowmesh_control.waiting import until
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_control.evaluators.conditions import SandboxedConditions
from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_core.graph.cel import ConditionError, check_size
from flowmesh_core.graph.conditions import evaluate
from flowmesh_core.graph.evaluation_budget import (
    RUN_STEPS,
    RUN_STEPS_PER_CONDITION,
    STEPS_MAX,
    EvaluationBudget,
)

TWENTY = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"
ONES = f"[{','.join('1' * 300)}]"
DOUBLED = "[1]" + ".map(x, [x, x])" * 60
PARAMS = {"list": ["x" * 10] * 3000, "huge": ["x"] * 60_000, "text": "x" * 60_000}

NEEDS_TOO_MUCH = {
    "macros nested four deep": (
        f"{TWENTY}.all(a, {TWENTY}.all(b, {TWENTY}.all(c, {TWENTY}.all(d, a+b+c+d > 0))))"
    ),
    "macros nested three deep": f"{TWENTY}.all(a, {TWENTY}.all(b, {TWENTY}.all(c, a+b+c > 0)))",
    "long lists": f"{ONES}.all(a, {ONES}.all(b, a == b))",
    "many comparisons that print what they compare": f"{ONES}.exists(x, params.list in [1, 2, 3])",
    "many errors that print a value": f"{ONES}.exists(x, params.list.y)",
    "many errors that print all names": f"{ONES}.exists(x, y) || [1].exists(y, true)",
    "a list of 2^60 compared": f"{DOUBLED} == {DOUBLED}",
    "a list of 2^60 searched": f"5 in {DOUBLED}",
    "a list of 2^60 printed": f"string({DOUBLED}) == 'a'",
    "strings doubled by map": "['a']" + ".map(x, x + x)" * 40 + " == ['a']",
    "lists doubled by map": "[[1]]" + ".map(x, x + x)" * 40 + " == [[1]]",
    "strings doubled by reduce": f"{TWENTY}.reduce(r, i, 'aaaaaaaaaa', r + r) == 'a'",
    "patterns that are large when compiled": ONES + r".exists(x, 'q'.matches('(\\pL{30}){30}'))",
    "values of a large list": "size(params.huge) > 1",
    "a long text letter by letter": "'a' in params.text",
}
ADMITTED = (
    "macros nested three deep",
    "strings doubled by map",
    "values of a large list",
    "a long text letter by letter",
)
"""Those of them that admission accepts: how much they need is seen in their evaluation."""
CANNOT_BE_DECIDED = {
    "errors that print errors, by a macro": f"[{','.join('123456789' * 8)}].all(x, 'a\"b')",
    "errors that print errors, by &&": "&&".join(["'a'"] * 400),
    "Python's formatting": "size('%900000000d' % 5) > 1",
    "Python's repetition": "size([1] * 900000000) > 1",
    "a duration in exponential time": f"duration('{'a' * 60}!') == duration('1s')",
    "a string that does not end": '"' + "\\a" * 60,
    "a long string that does not end": "'''" + "\\'" * 60,
    "line ends in a string that does not end": '"""' + "\r" * 60,
    "a list of 2^60 as the answer": DOUBLED,
    "an AssertionError": "duration('1h').getHours('UTC') == 1",
    "a KeyError": "int{a: 1} == 1",
    "an OSError": "timestamp('2020-01-01T00:00:00Z').getHours('America') == 1",
    "bytes by their number": "bytes(9000000000) == b''",
    "a long number": f"int('{'9' * 4000}') == 1",
    "a long time": f"timestamp('{'1' * 4000}') == timestamp('2020-01-01T00:00:00Z')",
    "signs without end": "!" * 4000 + "true",
}
HONEST = {
    "params.list.exists(t, t == 'b') || size(params.list) == 3000": 5_000,
    "[1, 2, 3].all(a, [1, 2, 3].all(b, [1, 2].exists(c, c <= a + b)))": 1_000,
    "duration('1h30m') < duration('2h') && 'abc'.matches('^[a-c]+$')": 200,
    "'a' + 'b' == 'ab' && [1] + [2] == [1, 2] && 7 % 4 == 3": 200,
    "'\\\\d' != 'd' && 'it\\'s' != \"a \\\"b\\\"\" // a \" in a comment": 100,
}


def _evaluate(text: str, budget: EvaluationBudget) -> bool:
    return evaluate(text, params=PARAMS, matrix={}, steps={}, budget=budget)


@pytest.mark.parametrize("text", NEEDS_TOO_MUCH.values(), ids=NEEDS_TOO_MUCH)
def test_an_evaluation_stops_when_its_step_budget_is_spent(text: str) -> None:
    budget = EvaluationBudget.of(1)
    with pytest.raises(AttemptError) as caught:
        _evaluate(text, budget)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    assert "needs more than 5,000 steps" in str(caught.value) or "makes a string" in str(
        caught.value
    )
    assert caught.value.failure.remedy == "compare values that a step has computed"
    assert budget.spent <= STEPS_MAX + 1


@pytest.mark.parametrize("text", CANNOT_BE_DECIDED.values(), ids=CANNOT_BE_DECIDED)
def test_an_expression_that_breaks_the_template_library_fails_its_step(text: str) -> None:
    budget = EvaluationBudget.of(1)
    with pytest.raises(AttemptError) as caught:
        _evaluate(text, budget)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    assert len(str(caught.value)) < 3 * 4096
    assert budget.spent <= STEPS_MAX + 1


@pytest.mark.parametrize(("text", "steps"), HONEST.items(), ids=HONEST)
def test_honest_conditions_are_evaluated_within_few_steps(text: str, steps: int) -> None:
    budget = EvaluationBudget.of(1)
    params: dict[str, Any] = {"list": ["a"] * 100 + ["b"]}
    assert evaluate(text, params=params, matrix={}, steps={}, budget=budget) is True
    assert 0 < budget.spent < steps


def test_nesting_and_size_are_refused_at_admission() -> None:
    with pytest.raises(ConditionError, match="nested 4 deep, of at most 3"):
        check_size(NEEDS_TOO_MUCH["macros nested four deep"])
    with pytest.raises(ConditionError, match="nested 60 deep"):
        check_size("[1].all(a, " * 60 + "true" + ")" * 60)
    with pytest.raises(ConditionError, match="parts, of at most 5,000"):
        check_size("[" + ",".join("1" * 600) + "] == []")
    for text in HONEST:
        check_size(text)


def test_the_conditions_of_a_run_share_one_budget() -> None:
    budget = EvaluationBudget.of(3)
    assert budget.total == RUN_STEPS + 3 * RUN_STEPS_PER_CONDITION
    failures = 0
    while "together" not in (said := _failure(budget)):
        failures += 1
        assert "needs more than 5,000 steps" in said
    assert failures == budget.total // (STEPS_MAX + 1)
    assert budget.spent <= budget.total + 1
    assert "the run's conditions need more than 200,150 steps together" in said


def _failure(budget: EvaluationBudget) -> str:
    with pytest.raises(AttemptError) as caught:
        _evaluate(NEEDS_TOO_MUCH["long lists"], budget)
    return str(caught.value)


def test_a_run_with_a_condition_over_its_budget_fails_and_other_runs_continue() -> None:
    world = World()
    world.join("w1")
    conditions = [*NEEDS_TOO_MUCH.values(), *CANNOT_BE_DECIDED.values()]
    attacks = [world.submit(plan(step("a", when=text), params=PARAMS)) for text in conditions]
    honest = world.submit(plan(step("a", when="size(params.list) == 3000"), params=PARAMS))
    world.run()
    assert world.finals[honest].phase == "Succeeded"
    for uid in attacks:
        assert world.finals[uid].phase == "Failed"
        assert world.finals[uid].steps[0].reason == FailureKind.BAD_INPUT


def test_a_condition_over_its_budget_fails_though_it_reads_a_skipped_step() -> None:
    text = f"steps['a'].metrics.x > 1 || {NEEDS_TOO_MUCH['long lists']}"
    with pytest.raises(AttemptError, match="needs more than 5,000 steps"):
        evaluate(text, params={}, matrix={}, steps={"a": None}, budget=EvaluationBudget.of(1))


def _nowhere_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every evaluation of a condition in this process fail."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a condition was evaluated in the control plane")

    monkeypatch.setattr("flowmesh_core.graph.conditions.evaluate", refused)
    monkeypatch.setattr("flowmesh_core.graph.cel.truth", refused)


async def test_a_multi_tenant_control_plane_evaluates_no_condition_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nowhere_here(monkeypatch)
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        steps = [
            {"name": f"s{n}", "uses": "test.noop", "when": NEEDS_TOO_MUCH[name]}
            for n, name in enumerate(ADMITTED)
        ]
        hostile = {"params": PARAMS, "steps": steps}
        attacks = [
            await fabric.submit(workflow(f"attack-{n}", hostile, "team-b")) for n in range(3)
        ]
        honest = {
            "params": {"list": [1, 2]},
            "steps": [{"name": "a", "uses": "test.noop", "when": "size(params.list) == 3"}],
        }
        uid = await fabric.submit(workflow("honest", honest))
        assert (await fabric.ended(uid)).phase == "Succeeded"
        for attack in attacks:
            status = await fabric.ended(attack)
            assert status.phase == "Failed"
            assert {s.reason for s in status.steps} == {FailureKind.BAD_INPUT}
        evaluator = fabric.control._started().evaluators.of_runs
        assert isinstance(evaluator, SandboxedConditions)
        assert evaluator.process.started == 1


async def test_a_restart_does_not_repeat_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nowhere_here(monkeypatch)
    steps = [
        {"name": "a", "uses": "test.noop", "when": "1 > 2"},
        {"name": "waits", "uses": "test.noop"},
    ]
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        uid = await fabric.submit(workflow("honest", {"steps": steps}))
        run = machine_of(fabric.control).state.runs[uid]
        await until(lambda: run.steps["a"].ended)
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        run = machine_of(fabric.control).state.runs[uid]
        assert (run.steps["a"].state, run.steps["a"].reason) == ("SKIPPED", "condition")
        evaluator = fabric.control._started().evaluators.of_runs
        assert isinstance(evaluator, SandboxedConditions)
        assert evaluator.process.started == 0


async def test_a_restart_evaluates_conditions_that_were_still_pending(tmp_path: Path) -> None:
    steps = [{"name": "a", "uses": "test.noop", "when": "1 > 2"}]
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        evaluator = fabric.control._started().evaluators.of_runs
        assert isinstance(evaluator, SandboxedConditions)
        await evaluator.process.start()
        (child,) = (p for p in psutil.Process().children() if "conditions" in p.cmdline())
        child.suspend()
        uid = await fabric.submit(workflow("honest", {"steps": steps}))
        run = machine_of(fabric.control).state.runs[uid]
        await until(lambda: run.evaluations)
        assert run.steps["a"].state == "PENDING"
        other = {"steps": [{"name": "b", "uses": "test.noop"}]}
        await fabric.submit(workflow("other", other, "team-b"))  # the loop does not wait
    assert not child.is_running()
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        status = await fabric.ended(uid)
        assert (status.phase, status.steps[0].state) == ("Succeeded", "SKIPPED")
