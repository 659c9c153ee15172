"""What a pool's status says, from what is seen of it; of constant size."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.pool_status import COMPONENTS_SHOWN
from flowmesh_operator.kube.timestamps import timestamp
from flowmesh_operator.pools.conditions import PoolCondition, PoolReason

MESSAGE_CHARS = 2_000
_SHOWN_DIGITS = 2

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """A pool in numbers, for its status and for metrics.

    Attributes:
        backlog_s: predicted worker-seconds of what runs and waits for it.
        wanted: workers that there should be; ``replicas`` how many its Deployment asks for;
            ``told`` what autoscalers of others read (``Plan.told``).
        ready: connected workers that take work; ``busy`` those that run something; ``connected``
            all, also who ends what it runs and takes nothing new.
        start_s: predicted seconds until a new worker connects.
        supply: workers that it can have, where more were asked for and do not come; else None.
    """

    backlog_s: float = 0.0
    wanted: int = 0
    replicas: int = 0
    ready: int = 0
    busy: int = 0
    start_s: float = 0.0
    told: int = 0
    connected: int = 0
    supply: int | None = None


@dataclass(frozen=True, slots=True)
class PoolConditionUpdate:
    """What is said of one condition."""

    type: PoolCondition
    holds: bool
    reason: PoolReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class PoolStatusContext:
    """What a status is about.

    Attributes:
        before: the status that stands there, for the times of conditions.
    """

    generation: int
    epoch: int
    now_s: float
    before: Mapping[str, Any]


def status_of(
    figures: PoolNumbers,
    said: Iterable[PoolConditionUpdate],
    components: Sequence[Json],
    decisions: Sequence[Json],
    about: PoolStatusContext,
) -> Json:
    """The whole status."""
    return {
        "desired": figures.wanted,
        "ready": figures.ready,
        "busy": figures.busy,
        "backlogSeconds": rounded(figures.backlog_s),
        "startSeconds": rounded(figures.start_s),
        "components": list(components),
        "decisions": list(decisions),
        "conditions": [_condition(one, about) for one in said],
        "observedGeneration": about.generation,
        "epoch": about.epoch,
    }


def rounded(value: float) -> int:
    """Two digits are enough for people, and do not change with every second."""
    whole = round(value)
    return round(whole, _SHOWN_DIGITS - len(str(abs(whole)))) if whole else 0


def warm(workers: Iterable[ConnectedWorker]) -> list[Json]:
    """The components that workers hold in host or device memory, the widest spread first."""
    count: Counter[str] = Counter()
    sizes: dict[str, int] = {}
    for worker in workers:
        for component in worker.components:
            if component.tier != "disk":
                count[component.digest] += 1
                sizes[component.digest] = component.size_bytes
    ranked = sorted(count, key=lambda d: (-count[d], -sizes[d], d))[:COMPONENTS_SHOWN]
    return [{"digest": d, "sizeBytes": sizes[d], "workers": count[d]} for d in ranked]


def readiness(figures: PoolNumbers, deployment: Json | None) -> PoolConditionUpdate:
    """Whether the workers are there, and what holds them up where Kubernetes says so."""
    if figures.connected >= figures.wanted:
        return PoolConditionUpdate(PoolCondition.READY, True, PoolReason.WORKERS_CONNECTED)
    message = f"{figures.connected} of {figures.wanted} workers are connected"
    stuck = _wrong(deployment, {"Progressing": "False", "ReplicaFailure": "True"})
    if not stuck and figures.supply is not None:
        stuck = (
            "the others have not come for long, and what another pool can run goes there; see the "
            "events of its pods"
        )
    if stuck:
        return PoolConditionUpdate(
            PoolCondition.READY, False, PoolReason.WORKERS_STUCK, f"{message}: {stuck}"
        )
    return PoolConditionUpdate(PoolCondition.READY, False, PoolReason.WORKERS_STARTING, message)


def scaling(
    pool: FlowMeshWorkerPool, *, keda: bool, hpa: Json | None = None, scaled: Json | None = None
) -> PoolConditionUpdate:
    """Who brings the number of workers to what is wanted.

    Args:
        pool: as the API server gives it.
        keda: whether the cluster knows ScaledObjects.
        hpa: the pool's HorizontalPodAutoscaler as last seen.
        scaled: its ScaledObject.
    """
    match pool.spec.autoscaling.mode:
        case "hpa" if asleep(hpa):
            return PoolConditionUpdate(PoolCondition.SCALING, True, PoolReason.BY_HPA)
        case "hpa":
            why = _wrong(hpa, {"AbleToScale": "False", "ScalingActive": "False"})
            reason = PoolReason.HPA_INACTIVE if why else PoolReason.BY_HPA
            return PoolConditionUpdate(PoolCondition.SCALING, not why, reason, why)
        case "backlog":
            return PoolConditionUpdate(PoolCondition.SCALING, True, PoolReason.BY_BACKLOG)
        case "keda" if keda:
            why = _why_keda_rests(scaled)
            reason = PoolReason.KEDA_INACTIVE if why else PoolReason.BY_KEDA
            return PoolConditionUpdate(PoolCondition.SCALING, not why, reason, why)
        case "keda":
            message = (
                "the operator was not told of KEDA, or the cluster has no ScaledObjects, or they "
                "may not be written; install KEDA and set keda.enabled in the chart's values, or "
                "set autoscaling.mode: backlog"
            )
            return PoolConditionUpdate(PoolCondition.SCALING, False, PoolReason.NO_KEDA, message)
    return PoolConditionUpdate(PoolCondition.SCALING, False, PoolReason.FIXED)


def _why_keda_rests(scaled: Json | None) -> str:
    """What KEDA says of a ScaledObject that it cannot scale by; empty where it does."""
    if not ((scaled or {}).get("status") or {}).get("conditions"):
        return (
            "no KEDA has looked at the ScaledObject yet; see that KEDA's operator runs, or set "
            "autoscaling.mode: backlog"
        )
    return _wrong(scaled, {"Ready": "False", "Paused": "True", "HPAActive": "False"})


def asleep(hpa: Json | None) -> bool:
    """Whether a HorizontalPodAutoscaler takes zero for a pause: it did not come there itself."""
    conditions = ((hpa or {}).get("status") or {}).get("conditions") or []
    return any(
        (c.get("type"), c.get("reason")) == ("ScalingActive", "ScalingDisabled") for c in conditions
    )


def decision(now_s: float, before: int, after: int, reason: str) -> Json:
    """One entry of ``decisions``."""
    return {"time": timestamp(now_s), "before": before, "after": after, "reason": reason}


def _wrong(live: Json | None, bad: Mapping[str, str]) -> str:
    """What an object's own conditions say is wrong."""
    for one in ((live or {}).get("status") or {}).get("conditions") or []:
        if bad.get(one.get("type")) == one.get("status"):
            return str(one.get("message", ""))
    return ""


def _condition(said: PoolConditionUpdate, about: PoolStatusContext) -> Json:
    status = "True" if said.holds else "False"
    known = {c.get("type"): c for c in about.before.get("conditions") or []}.get(said.type, {})
    since = known.get("lastTransitionTime") if known.get("status") == status else None
    return {
        "type": said.type.value,
        "status": status,
        "reason": said.reason.value,
        "message": said.message[:MESSAGE_CHARS],
        "lastTransitionTime": since or timestamp(about.now_s),
        "observedGeneration": about.generation,
    }
