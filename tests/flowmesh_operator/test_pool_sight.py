"""Observation of pods, and a pool's status."""

from typing import Any

import pytest
from tests.flowmesh_operator.pool_builder import make_pool

from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.labels import DELETION_COST
from flowmesh_operator.pools.conditions import PoolCondition, PoolReason
from flowmesh_operator.pools.observation import pod_seen
from flowmesh_operator.pools.status import (
    PoolNumbers,
    asleep,
    readiness,
    rounded,
    scaling,
    status_of,
)


def pod(**changes: Any) -> dict[str, Any]:
    meta = {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z", **changes.pop("meta", {})}
    return {"metadata": meta, "status": changes}


def test_readiness_deletion_and_cost_are_read_from_the_pod() -> None:
    assert not pod_seen(pod()).ready
    up = pod(conditions=[{"type": "Ready", "status": "True"}])
    assert pod_seen(up).ready
    assert pod_seen(pod(meta={"deletionTimestamp": "2026-01-01T00:00:01Z"})).leaving
    assert pod_seen(pod(meta={"annotations": {DELETION_COST: "-1000"}})).cost == -1000
    assert pod_seen(pod(meta={"annotations": {DELETION_COST: "low"}})).cost == 0
    assert pod_seen(pod()).created_s == 1767225600.0


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_an_evicted_pod_is_no_longer_a_worker_of_the_pool(phase: str) -> None:
    assert pod_seen(pod(phase=phase)).leaving
    assert not pod_seen(pod(phase="Pending")).leaving


def test_figures_are_shown_to_two_digits() -> None:
    shown = {0.0: 0, 0.4: 0, 7.0: 7, 99.0: 99, 123.0: 120, 987.0: 990, 12_345.0: 12_000}
    assert {value: rounded(value) for value in shown} == shown


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    up, down = PoolNumbers(wanted=1, connected=1), PoolNumbers(wanted=1)
    first = status_of(up, [readiness(up, None)], [], [], StatusContext(1, 1, 0.0, {}))
    again = status_of(up, [readiness(up, None)], [], [], StatusContext(2, 1, 50.0, first))
    assert again["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    changed = status_of(down, [readiness(down, None)], [], [], StatusContext(2, 1, 60.0, again))
    assert changed["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:01:00Z"


def test_workers_that_do_not_start_are_reported_with_kubernetes_message() -> None:
    figures = PoolNumbers(wanted=2, connected=1)
    assert readiness(figures, None).reason is PoolReason.WORKERS_STARTING
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    said = readiness(figures, {"status": {"conditions": [failed]}})
    assert said.reason is PoolReason.WORKERS_STUCK
    assert said.message == "1 of 2 workers are connected: exceeded quota"


def test_a_pool_that_gets_no_more_workers_shows_kubernetes_reason_if_there_is_one() -> None:
    figures = PoolNumbers(wanted=2, connected=1, supply=1)
    said = readiness(figures, None)
    assert said.reason is PoolReason.WORKERS_STUCK
    assert "1 of 2 workers are connected: the others have not connected for long" in said.message
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    assert readiness(figures, {"status": {"conditions": [failed]}}).message.endswith("quota")


def test_a_busy_worker_that_takes_no_new_work_counts_as_connected() -> None:
    figures = PoolNumbers(wanted=1, ready=0, busy=1, connected=1)
    assert readiness(figures, None).holds


def test_the_condition_shows_why_a_horizontal_autoscaler_cannot_scale() -> None:
    pool = make_pool({"autoscaling": {"mode": "hpa"}})
    assert scaling(pool, keda=False).reason is PoolReason.BY_HPA
    able = {"type": "AbleToScale", "status": "True", "message": "ready for a new scale"}
    blind = {"type": "ScalingActive", "status": "False", "message": "no external metrics API"}
    said = scaling(pool, keda=False, hpa={"status": {"conditions": [able, blind]}})
    assert (said.holds, said.reason) == (False, PoolReason.HPA_INACTIVE)
    assert said.message == "no external metrics API"
    paused = {"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled"}
    hpa = {"status": {"conditions": [paused]}}
    assert asleep(hpa)
    assert not asleep(None)
    assert scaling(pool, keda=False, hpa=hpa).reason is PoolReason.BY_HPA, "the operator wakes it"


def test_a_pool_that_waits_for_missing_keda_shows_a_remedy() -> None:
    keda = make_pool({"autoscaling": {"mode": "keda"}})
    said = scaling(keda, keda=False)
    assert (said.type, said.holds) == (PoolCondition.SCALING, False)
    assert "install KEDA" in said.message
    assert scaling(make_pool({"autoscaling": {"mode": "fixed"}}), keda=False).reason == "Fixed"


def test_the_condition_shows_why_keda_cannot_use_a_scaled_object() -> None:
    keda = make_pool({"autoscaling": {"mode": "keda"}})

    def said(*conditions: tuple[str, str, str]) -> ConditionUpdate:
        listed = [dict(zip(("type", "status", "message"), c, strict=True)) for c in conditions]
        return scaling(keda, keda=True, scaled={"status": {"conditions": listed}})

    unseen = scaling(keda, keda=True, scaled={})
    assert (unseen.holds, unseen.reason) == (False, PoolReason.KEDA_INACTIVE)
    assert "KEDA's operator runs" in unseen.message
    assert said(("Ready", "Unknown", "")).reason is PoolReason.BY_KEDA
    assert said(("Ready", "True", ""), ("HPAActive", "True", "")).reason is PoolReason.BY_KEDA
    wrong = said(("Ready", "False", "Triggers are not working correctly"))
    assert (wrong.reason, wrong.message) == (PoolReason.KEDA_INACTIVE, "Triggers are not working "
                                             "correctly")  # fmt: skip
    assert said(("Paused", "True", "ScaledObject is paused")).message == "ScaledObject is paused"
