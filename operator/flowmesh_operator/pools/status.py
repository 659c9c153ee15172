"""Builds a pool's status from its observed numbers; of bounded size."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.pool_status import COMPONENTS_SHOWN
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.timestamps import timestamp
from flowmesh_operator.pools.conditions import PoolCondition, PoolReason
from flowmesh_operator.pools.start_problems import StartProblem

MESSAGE_CHARS = 2_000
NAMES_SHOWN = 8
_SHOWN_DIGITS = 2

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """A pool's numbers, for its status and for metrics.

    Attributes:
        backlog_s: predicted worker-seconds of the work that runs and waits.
        wanted: workers that the pool should have; ``replicas`` is its Deployment's size; ``told``
            is what external autoscalers read (``ScalingPlan.external_target``).
        ready: connected workers that take work; ``busy`` counts those with attempts, ``connected``
            all of them, with those that drain.
        start_s: predicted seconds until a new worker connects.
        supply: workers that it can get, where more were requested and do not come; else None.
        without_store: connected workers that cannot reach the store; ``store_problem`` has what one
            of them says.
    """

    backlog_s: float = 0.0
    wanted: int = 0
    replicas: int = 0
    ready: int = 0
    busy: int = 0
    start_s: float = 0.0
    external_target: int = 0
    connected: int = 0
    supply: int | None = None
    without_store: int = 0
    store_problem: str = ""


def status_of(
    figures: PoolNumbers,
    said: Iterable[ConditionUpdate],
    components: Sequence[Json],
    decisions: Sequence[Json],
    about: StatusContext,
) -> Json:
    """Returns the whole status."""
    return {
        "desired": figures.wanted,
        "ready": figures.ready,
        "busy": figures.busy,
        "backlogSeconds": rounded(figures.backlog_s),
        "startSeconds": rounded(figures.start_s),
        "components": list(components),
        "decisions": list(decisions),
        "conditions": about.conditions(said, most_chars=MESSAGE_CHARS),
        "observedGeneration": about.generation,
        "epoch": about.epoch,
    }


def rounded(value: float) -> int:
    """Rounds to two digits, so that the status does not change every second."""
    whole = round(value)
    return round(whole, _SHOWN_DIGITS - len(str(abs(whole)))) if whole else 0


def warm(workers: Iterable[ConnectedWorker]) -> list[Json]:
    """Returns the components in workers' host or device memory, the most common first."""
    count: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for worker in workers:
        for component in worker.components:
            if component.tier != "disk":
                count[component.digest] += 1
                sizes[component.digest] = component.size_bytes
    ranked = sorted(count, key=lambda d: (-count[d], -sizes[d], d))[:COMPONENTS_SHOWN]
    return [{"digest": d, "sizeBytes": sizes[d], "workers": count[d]} for d in ranked]


def readiness(
    figures: PoolNumbers, deployment: Json | None, problem: StartProblem | None = None
) -> ConditionUpdate:
    """Returns the Ready condition, with Kubernetes' reason where workers do not start.

    Args:
        figures: the pool's numbers.
        deployment: its Deployment as last observed.
        problem: why its pods do not start; None where no pod says so.
    """
    if figures.connected >= figures.wanted and not figures.without_store:
        return ConditionUpdate(PoolCondition.READY, True, PoolReason.WORKERS_CONNECTED)
    if figures.without_store:
        message = (
            f"{figures.without_store} of {figures.connected} workers cannot reach the store and"
            f" take no work: {figures.store_problem}"
        )
        return ConditionUpdate(PoolCondition.READY, False, PoolReason.STORE_UNREACHABLE, message)
    message = f"{figures.connected} of {figures.wanted} workers are connected"
    if problem is not None:
        return ConditionUpdate(
            PoolCondition.READY, False, problem.reason, f"{message}: {problem.message}"
        )
    stuck = _failing_condition(deployment, {"Progressing": "False", "ReplicaFailure": "True"})
    if not stuck and figures.supply is not None:
        stuck = (
            "the others have not connected for long, so actions go to other pools where they can; "
            "see the events of its pods"
        )
    if stuck:
        return ConditionUpdate(
            PoolCondition.READY, False, PoolReason.WORKERS_STUCK, f"{message}: {stuck}"
        )
    return ConditionUpdate(PoolCondition.READY, False, PoolReason.WORKERS_STARTING, message)


def scaling(
    pool: FlowMeshWorkerPool, *, keda: bool, hpa: Json | None = None, scaled: Json | None = None
) -> ConditionUpdate:
    """Returns the Scaling condition: what sets the number of workers.

    Args:
        pool: the validated pool.
        keda: whether the cluster serves ScaledObjects.
        hpa: the pool's HorizontalPodAutoscaler as last observed.
        scaled: its ScaledObject as last observed.
    """
    match pool.spec.autoscaling.mode:
        case "hpa" if asleep(hpa):
            return ConditionUpdate(PoolCondition.SCALING, True, PoolReason.BY_HPA)
        case "hpa":
            why = _failing_condition(hpa, {"AbleToScale": "False", "ScalingActive": "False"})
            reason = PoolReason.HPA_INACTIVE if why else PoolReason.BY_HPA
            return ConditionUpdate(PoolCondition.SCALING, not why, reason, why)
        case "backlog":
            return ConditionUpdate(PoolCondition.SCALING, True, PoolReason.BY_BACKLOG)
        case "keda" if keda:
            why = _keda_problem(scaled)
            reason = PoolReason.KEDA_INACTIVE if why else PoolReason.BY_KEDA
            return ConditionUpdate(PoolCondition.SCALING, not why, reason, why)
        case "keda":
            message = (
                "KEDA is not enabled, not installed, or the operator may not write ScaledObjects; "
                "install KEDA and set keda.enabled in the chart's values, or set "
                "autoscaling.mode: backlog"
            )
            return ConditionUpdate(PoolCondition.SCALING, False, PoolReason.NO_KEDA, message)
    return ConditionUpdate(PoolCondition.SCALING, False, PoolReason.FIXED)


def distrust(workers: Iterable[ConnectedWorker]) -> ConditionUpdate:
    """Returns the WorkerDistrusted condition, with the names of the cordoned workers."""
    names = sorted(worker.name for worker in workers if worker.distrusted)
    if not names:
        return ConditionUpdate(PoolCondition.WORKER_DISTRUSTED, False, PoolReason.NO_VIOLATIONS)
    shown_names = ", ".join(names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    message = (
        f"no new work goes to {shown_names}{more}, after messages that break the protocol; the "
        "operator's log has what was wrong: check the pool's image, then delete the pod"
    )
    return ConditionUpdate(
        PoolCondition.WORKER_DISTRUSTED, True, PoolReason.PROTOCOL_VIOLATIONS, message
    )


def _keda_problem(scaled: Json | None) -> str:
    """Returns why KEDA does not scale by a ScaledObject; empty where it does."""
    if not ((scaled or {}).get("status") or {}).get("conditions"):
        return (
            "KEDA has not acted on the ScaledObject yet; check that KEDA's operator runs, or set "
            "autoscaling.mode: backlog"
        )
    return _failing_condition(scaled, {"Ready": "False", "Paused": "True", "HPAActive": "False"})


def asleep(hpa: Json | None) -> bool:
    """Returns whether a HorizontalPodAutoscaler is disabled because the size is zero."""
    conditions = ((hpa or {}).get("status") or {}).get("conditions") or []
    return any(
        (c.get("type"), c.get("reason")) == ("ScalingActive", "ScalingDisabled") for c in conditions
    )


def decision(now_s: float, before: int, after: int, reason: str) -> Json:
    """Returns one entry of ``decisions``."""
    return {"time": timestamp(now_s), "before": before, "after": after, "reason": reason}


def _failing_condition(live: Json | None, failing: Mapping[str, str]) -> str:
    """Returns the message of the first of an object's conditions that is failing; else empty."""
    for one in ((live or {}).get("status") or {}).get("conditions") or []:
        if failing.get(one.get("type")) == one.get("status"):
            return str(one.get("message", ""))
    return ""
