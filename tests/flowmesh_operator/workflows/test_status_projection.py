"""The status of an object from its run."""

from typing import Any

import msgspec
import pytest

from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.spec.status import MOST_ROWS, WorkflowStatus
from flowmesh_core.status.conditions import WorkflowReason
from flowmesh_core.status.overflow import overflows
from flowmesh_operator.kube.conditions import StatusContext
from flowmesh_operator.workflows.conditions import not_accepted_yet, refused
from flowmesh_operator.workflows.status_projection import (
    of_refusal,
    of_run,
    only_minor,
    patch,
)


def about(before: dict[str, Any] | None = None, now_s: float = 100.0) -> StatusContext:
    return StatusContext(before=before or {}, generation=2, epoch=7, now_s=now_s)


def run(phase: str = "Running", **more: Any) -> RunStatus:
    steps = (
        StepStatus("a", "test.noop", "COMPLETED", actions=1, done=1, paid_nanousd=1_500_000),
        StepStatus("b", "test.sleep", "RUNNING", actions=4, done=1),
    )
    given: dict[str, Any] = {
        "steps": steps, "counts": {"COMPLETED": 1, "RUNNING": 1}, "paid_nanousd": 1_500_000,
        **more,
    }  # fmt: skip
    return RunStatus("u", "n", "team", phase, 50.0, **given)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_every_status_field_is_defined_in_the_custom_resource() -> None:
    status = of_run(run(outputs={"o": {"kind": "metrics", "value": {"x": 1}, "bytes": 3}}), about())
    WorkflowStatus.model_validate({**status}, extra="forbid")
    assert (status["progress"], status["costUsd"]) == ("1/2", "0.001500")
    assert (status["observedGeneration"], status["epoch"]) == (2, 7)


def test_cancelled_and_failed_steps_do_not_count_as_progress() -> None:
    counts = {"COMPLETED": 2, "SKIPPED": 1, "FAILED": 1, "CANCELLED": 3, "RUNNING": 1}
    assert of_run(run(counts=counts), about())["progress"] == "3/8"
    assert of_run(run("Cancelled", counts={"CANCELLED": 4}), about())["progress"] == "0/4"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (run(), {"Running": ("True", "StepsRunning"), "Complete": ("False", "Unfinished")}),
        (run("Suspended"), {"Running": ("False", "Suspended")}),
        (run("Succeeded"), {"Complete": ("True", "Succeeded"), "Failed": ("False", "Succeeded")}),
        (run("Failed", reason="engine"), {"Failed": ("True", "StepFailed")}),
        (run("Cancelled", reason="budget"), {"Failed": ("True", "BudgetExceeded")}),
        (run("Cancelled"), {"Failed": ("True", "Cancelled"), "Accepted": ("True", "Admitted")}),
    ],
)
def test_conditions_reflect_the_state_of_the_run(
    given: RunStatus, wanted: dict[str, tuple[str, str]]
) -> None:
    assert wanted.items() <= conditions(of_run(given, about())).items()


def test_the_condition_of_a_run_not_suspended_by_its_spec_shows_the_actual_reason() -> None:
    def message(given: RunStatus) -> str:
        found = of_run(given, about())["conditions"]
        return str(next(c["message"] for c in found if c["type"] == "Running"))

    stopped = run("Suspended", reason="control-plane-stopped", message="it stopped", remedy="`x`")
    assert message(stopped) == "it stopped; `x`"
    assert "spec.suspend" in message(run("Suspended"))


def test_a_condition_keeps_the_time_at_which_it_last_changed() -> None:
    first = of_run(run(), about(now_s=100.0))
    later = of_run(run("Succeeded"), about(first, now_s=200.0))
    times = {c["type"]: c["lastTransitionTime"] for c in later["conditions"]}
    assert times["Accepted"] == times["Failed"] == "1970-01-01T00:01:40Z"
    assert times["Complete"] == times["Running"] == "1970-01-01T00:03:20Z"


def test_an_unchanged_status_is_not_written_and_changed_figures_alone_are_minor() -> None:
    shown = of_run(run(), about())
    assert patch(of_run(run(), about(shown, now_s=150.0)), shown) == {}
    dearer = of_run(run(paid_nanousd=2_000_000), about(shown))
    assert patch(dearer, shown) == {"costUsd": "0.002000"}
    assert only_minor(dearer, shown)
    assert not only_minor(of_run(run("Succeeded"), about(shown)), shown)


def test_an_entry_removed_from_a_map_is_nulled_by_the_patch() -> None:
    assert patch({"outputs": {"b": {}}}, {"outputs": {"a": {}}}) == {
        "outputs": {"a": None, "b": {}}
    }


def test_a_status_of_many_steps_is_small_and_shows_steps_with_problems_first() -> None:
    steps = tuple(
        StepStatus(
            f"s{i:06}", "test.noop", "FAILED" if i == 99_999 else "COMPLETED", message="m" * 9
        )
        for i in range(100_000)
    )
    wide = run(steps=steps, counts={"COMPLETED": 99_999, "FAILED": 1})
    status = of_run(wide, about(), "cas:x")
    assert overflows(wide)
    assert len(status["steps"]) == MOST_ROWS
    assert status["steps"][0]["path"] == "s099999"
    assert len(msgspec.json.encode(status)) < 64 << 10


def test_a_refusal_ends_a_workflow_and_a_temporary_failure_does_not() -> None:
    over = of_refusal(refused(WorkflowReason.INVALID, "spec: wrong"), about())
    assert (over["phase"], over["message"]) == ("Failed", "spec: wrong")
    assert conditions(over) == {"Accepted": ("False", "Invalid"), "Failed": ("True", "Invalid")}
    waits = of_refusal(not_accepted_yet(WorkflowReason.UNAVAILABLE, "no answer"), about())
    assert waits["phase"] == "Pending"
    assert "endedAt" not in waits
