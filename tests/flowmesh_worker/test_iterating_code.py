"""A component that iterates, as its process runs it: steps, results, failures and states."""

from typing import Any

import msgspec
import pytest

from flowmesh_core.protocol.serving import StoredInput
from flowmesh_core.stages.component_methods import methods_problem
from flowmesh_worker.engines.code.component_code import ComponentCode, WrongResultsError
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
    StepMember,
)
from flowmesh_worker.ipc.spare_files import SpareFiles

CODE = """
class Countdown:
    def start(self, call):
        if call.get("fail") == "start":
            raise ValueError("no start")
        return {"left": call["n"], "sum": 0, **call}

    def step(self, states):
        if any(state.get("fail") == "step" for state in states):
            raise ValueError("no step")
        for state in states:
            state["sum"] += state["left"]
            state["left"] -= 1
        return [state["left"] == 0 for state in states]

    def finish(self, state):
        if state.get("fail") == "finish":
            raise ValueError("no finish")
        return state["sum"]

class Counted(Countdown):
    def remaining(self, state):
        return "many" if state.get("fail") == "remaining" else state["left"]

class Odd(Countdown):
    returned = None

    def step(self, states):
        return Odd.returned

def address(batch):
    return [id(call["value"]) for call in batch]

class Same(Countdown):
    def finish(self, state):
        return state["value"]

def odd(value):
    Odd.returned = value
"""


def loaded(function: str) -> ComponentCode:
    return ComponentCode((LoadedCode("c", CODE, function, 8),), SpareFiles())


def begin(state: str, n: int = 1, **more: Any) -> StepMember:
    body = msgspec.json.encode({"n": n, **more})
    return StepMember(state, BatchCall(body, {}, "", wants_body=True))


def step(code: ComponentCode, *members: StepMember) -> list[CallResult]:
    return code.step("c", members).results


def shown(results: list[CallResult]) -> list[Any]:
    return [msgspec.json.decode(r.body) if r.body else r.kind for r in results]


def states(code: ComponentCode) -> frozenset[str]:
    return code._iterating["c"].states


def test_calls_join_and_leave_at_each_step_and_have_the_results_of_calls_alone() -> None:
    code = loaded("Countdown")
    assert code.iterating == ("c",)
    assert shown(step(code, begin("a", 3), begin("b", 1))) == [ResultKind.UNFINISHED, 1]
    again = StepMember("a")
    assert shown(step(code, begin("c", 2), again)) == [ResultKind.UNFINISHED, ResultKind.UNFINISHED]
    assert shown(step(code, again, StepMember("c"))) == [6, 3]
    assert states(code) == frozenset()
    for n, total in ((3, 6), (1, 1), (2, 3)):
        alone = [step(code, begin("x", n)), *(step(code, StepMember("x")) for _ in range(n - 1))]
        assert shown(alone[-1]) == [total]


def test_a_call_that_raises_in_start_or_finish_fails_alone_with_its_line() -> None:
    code = loaded("Countdown")
    members = [begin("a", fail="start"), begin("b"), begin("c", fail="finish"), begin("d", 2)]
    results = step(code, *members)
    assert shown(results) == [ResultKind.RAISED, 1, ResultKind.RAISED, ResultKind.UNFINISHED]
    assert 'raise ValueError("no start")' in results[0].error
    assert "ValueError: no finish" in results[2].error
    assert states(code) == {"d"}


def test_where_a_step_raises_all_its_states_are_dropped_and_a_call_alone_has_failed() -> None:
    code = loaded("Countdown")
    step(code, begin("kept", 9))
    results = step(code, begin("a", 5), begin("b", 5, fail="step"))
    assert shown(results) == [ResultKind.RESTART] * 2
    assert states(code) == {"kept"}
    (alone,) = step(code, begin("b", 5, fail="step"))
    assert (alone.kind, "ValueError: no step" in alone.error) == (ResultKind.RAISED, True)
    assert states(code) == {"kept"}


def test_a_state_that_is_not_there_is_named_and_forgotten_ones_are_dropped() -> None:
    code = loaded("Countdown")
    step(code, begin("a", 3), begin("b", 3))
    code.forget(["a", "nothing"])
    assert shown(step(code, StepMember("a"), StepMember("b"))) == [
        ResultKind.STATE_LOST,
        ResultKind.UNFINISHED,
    ]


def test_the_steps_that_remain_are_reported_where_the_component_says_them() -> None:
    code = loaded("Counted")
    first = step(code, begin("a", 5), begin("b", 2, fail="remaining"))
    assert first[0] == CallResult(ResultKind.UNFINISHED, remaining=4)
    assert first[1].kind is ResultKind.RAISED
    assert "remaining of c returned str: expected an int" in first[1].error
    assert step(loaded("Countdown"), begin("a", 5)) == [CallResult(ResultKind.UNFINISHED)]


@pytest.mark.parametrize("returned", [None, [], [True, False], ["done"], [None], 1])
def test_a_step_that_does_not_say_what_is_finished_is_an_error(returned: Any) -> None:
    code = loaded("Odd")
    code._iterating["c"]._component.step.__globals__["odd"](returned)
    (result,) = step(code, begin("a"))
    assert result.kind is ResultKind.RAISED
    assert "expected a list with True for each that is finished" in result.error


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        (["compute"], ""),
        (["compute", "start"], ""),
        (["start", "step", "finish"], ""),
        (["start", "step", "finish", "remaining"], ""),
        (["compute", "step"], "class C has both compute and step: expected compute, or start"),
        (["step"], "class C has step and no start and no finish: expected start, step and finish"),
        (["start", "step"], "class C has step and no finish: expected"),
        (["start"], "class C has neither compute nor step: expected a method compute, or start"),
    ],
)
def test_methods_that_contradict_each_other_are_refused(methods: list[str], problem: str) -> None:
    found = methods_problem("C", methods)
    assert found.startswith(problem) if problem else not found
    code = "class C:\n" + "".join(
        f"    def {name}(self, x):\n        return x\n" for name in methods
    )
    made = (LoadedCode("c", code, "C", 8),)
    if problem:
        with pytest.raises(WrongResultsError, match=f"the code of c: {problem}"):
            ComponentCode(made, SpareFiles())
    else:
        ComponentCode(made, SpareFiles())


def test_results_of_other_components_pass_as_objects_into_a_state_and_out_of_it() -> None:
    parts = (LoadedCode("c", CODE, "Same", 8), LoadedCode("a", CODE, "address", 8))
    code = ComponentCode(parts, SpareFiles())
    code._stored["k"] = made = {"id": 1}
    call = BatchCall(b'{"n": 2}', {"value": StoredInput("k")}, "out", wants_body=False)
    step(code, StepMember("s", call))
    code.forget(["k"])
    assert [r.kind for r in step(code, StepMember("s"))] == [ResultKind.OK]
    asked = BatchCall(b"{}", {"value": StoredInput("out")}, "", wants_body=True)
    assert shown(code.run("a", [asked])) == [id(made)]
    lost = StepMember("t", call)
    assert shown(step(code, lost)) == [ResultKind.LOST]
