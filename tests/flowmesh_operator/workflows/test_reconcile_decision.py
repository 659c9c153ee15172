"""The decision for a workflow object, from its status and whether its run is known."""

from typing import Any

import pytest

from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_operator.workflows.reconcile_decision import ReconcileDecision as Decision
from flowmesh_operator.workflows.reconcile_decision import amendments, decide

REFUSED = {"conditions": [{"type": "Accepted", "status": "False"}], "phase": "Failed"}


def workflow(generation: int = 1, **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "generation": generation, **more}, "spec": {}}


def said(phase: str, observed: int = 1, epoch: int = 3, **more: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, "observedGeneration": observed, "epoch": epoch, **more}}


CASES = {
    "a new object is submitted": (workflow(), False, Decision.SUBMIT),
    "an object whose run is lost is submitted again": (
        workflow() | said("Running"), False, Decision.SUBMIT,
    ),
    "one that was not accepted yet is tried again": (
        workflow() | said("Pending"), False, Decision.SUBMIT,
    ),
    "one that was refused is left alone": (
        workflow() | {"status": {**REFUSED, "observedGeneration": 1}}, False, Decision.NOTHING,
    ),
    "one that was refused is tried again when its spec has changed": (
        workflow(2) | {"status": {**REFUSED, "observedGeneration": 1}}, False, Decision.SUBMIT,
    ),
    "a run that goes on is told of a changed spec": (
        workflow(2) | said("Running"), True, Decision.AMEND,
    ),
    "a run that goes on as its status says needs nothing": (
        workflow() | said("Running"), True, Decision.NOTHING,
    ),
    "a run that another leader showed is shown": (
        workflow() | said("Running", epoch=2), True, Decision.PUBLISH_STATUS,
    ),
    "a run that was never shown may have to be told too": (workflow(), True, Decision.AMEND),
    "an ended one needs nothing, and no look at the store": (
        workflow() | said("Succeeded", epoch=1), False, Decision.NOTHING,
    ),
    "an ended one whose spec has changed says that it knows": (
        workflow(2) | said("Succeeded"), False, Decision.PUBLISH_STATUS,
    ),
    "the run of an object that is gone is cancelled": (None, True, Decision.CANCEL),
    "an object that is gone needs nothing": (None, False, Decision.NOTHING),
    "the run of an object that waits for somebody's finalizer is cancelled": (
        workflow(deletionTimestamp="now") | said("Running"), True, Decision.CANCEL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_decide_returns_the_reconcile_action_of_each_case(case: str) -> None:
    obj, live, wanted = CASES[case]
    assert decide(obj, live=live, epoch=3) is wanted


def test_a_term_that_a_parameter_fills_is_compared_by_its_value() -> None:
    params = {
        "budget": {"type": "string", "default": "0.50"},
        "hours": 2,
        "none": {"type": "string", "required": False},
    }
    terms = RunTerms(
        suspended=False, priority=0, budget_nanousd=500_000_000, deadline_s=7200.0, steps=1
    )
    spec = {"params": params, "budgetUsd": "${params.budget}", "deadline": "${params.hours}h"}
    assert amendments(spec, terms) == {}
    assert amendments({**spec, "budgetUsd": "1"}, terms) == {"budgetNanousd": 10**9}
    assert amendments({**spec, "budgetUsd": "${params.none}"}, terms) == {"budgetNanousd": 0}
