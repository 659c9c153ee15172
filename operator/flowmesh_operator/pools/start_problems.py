"""Finds why pods of a pool do not start, from their statuses. Pure.

The pool controller lists the pods of a pool that lacks workers, and shows the result as the reason
and message of the pool's Ready condition. The kubelet and the scheduler say what is wrong in a
pod's status within seconds; a Deployment says it after half an hour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_operator.pools.conditions import PoolReason
from flowmesh_operator.pools.observation import ENDED

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that wait without a problem."""
_IMAGE = "check spec.image, imagePullPolicy and imagePullSecrets of the pool"
_REMEDIES: Mapping[PoolReason, str] = {
    PoolReason.UNSCHEDULABLE: "compare nodeSelector, tolerations, devices and resources of the pool"
    " with the nodes; the pod starts by itself when a node for it comes",
    PoolReason.IMAGE_PULL_BACK_OFF: _IMAGE,
    PoolReason.ERR_IMAGE_PULL: _IMAGE,
    PoolReason.ERR_IMAGE_NEVER_PULL: _IMAGE,
    PoolReason.INVALID_IMAGE_NAME: _IMAGE,
    PoolReason.CREATE_CONTAINER_CONFIG_ERROR: "create what the message names",
    PoolReason.CRASH_LOOP_BACK_OFF: "read the container's last lines with kubectl logs --previous",
    PoolReason.WORKERS_STUCK: "see the pod's events with kubectl describe",
}
"""Reasons in the order in which they are shown where pods have several."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartProblem:
    """Why pods do not start.

    Attributes:
        reason: as the scheduler or the kubelet calls it; ``WorkersStuck`` for rare ones.
        message: their own words about one pod, and the remedy.
    """

    reason: PoolReason
    message: str


def start_problem(pods: Iterable[Json]) -> StartProblem | None:
    """Returns the problem that most of the pods have; None where all start or run.

    Args:
        pods: all of one pool, as the API server lists them.
    """
    found: dict[PoolReason, list[tuple[str, str]]] = {}
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        status = pod.get("status") or {}
        if "deletionTimestamp" in pod["metadata"] or status.get("phase") in ENDED:
            continue
        problem = _unschedulable(status) or _waiting(status)
        if problem is not None:
            reason, message = problem
            found.setdefault(reason, []).append((pod["metadata"]["name"], message))
    if not found:
        return None
    order = list(_REMEDIES)
    reason = min(found, key=lambda r: (-len(found[r]), order.index(r)))
    (name, message), *others = found[reason]
    more = f" (and {len(others)} more)" if others else ""
    return StartProblem(reason, f"pod {name}{more}: {message}; {_REMEDIES[reason]}")


def _unschedulable(status: Json) -> tuple[PoolReason, str] | None:
    for one in status.get("conditions") or []:
        said = (one.get("type"), one.get("status"), one.get("reason"))
        if said == ("PodScheduled", "False", "Unschedulable"):
            return PoolReason.UNSCHEDULABLE, _one_line(one.get("message"))
    return None


def _waiting(status: Json) -> tuple[PoolReason, str] | None:
    """Returns the problem of the first container that waits for more than its start."""
    listed = (status.get("initContainerStatuses"), status.get("containerStatuses"))
    for container in (one for statuses in listed for one in statuses or []):
        waiting = (container.get("state") or {}).get("waiting") or {}
        name = str(waiting.get("reason") or "")
        if name in _STARTING:
            continue
        known = name in set(PoolReason)
        reason = PoolReason(name) if known else PoolReason.WORKERS_STUCK
        message = _one_line(waiting.get("message")) or f"container {container.get('name')}: {name}"
        if not known:
            message = f"{name}: {message}"
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if reason is PoolReason.CRASH_LOOP_BACK_OFF and "exitCode" in ended:
            message += f"; it ended with exit code {ended['exitCode']} ({ended.get('reason')})"
        return reason, message
    return None


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split()).rstrip(".;")
