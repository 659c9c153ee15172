"""Why pods of a pool do not start, read from their statuses as the API server gives them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.flowmesh_operator.pool_builder import AROUND, pool_object
from tests.flowmesh_operator.test_policy_status import Patched, Third

from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.pools.conditions import PoolReason
from flowmesh_operator.pools.controller import PROBLEM_INTERVAL_S, ROUND_S, PoolController
from flowmesh_operator.pools.pool import PoolEntry
from flowmesh_operator.pools.start_problems import StartProblem, start_problem
from flowmesh_operator.pools.status import PoolNumbers, readiness

LACKING = PoolNumbers(wanted=2)
BACK_OFF = (
    'Back-off pulling image "registry.example.com/absent:v1": ErrImagePull: failed to pull and '
    'unpack image "registry.example.com/absent:v1": not found'
)
NO_NODE = (
    "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: "
    "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)


def pod(name: str = "p-1", *, meta: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A pod as listed; by default one that has just been created."""
    return {"metadata": {"name": name, **(meta or {})}, "status": {"phase": "Pending", **status}}


def scheduled(status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": status, "lastProbeTime": None, **more}


def container(name: str = "worker", **state: Any) -> dict[str, Any]:
    last = state.pop("lastState", {})
    return {
        "name": name, "image": "i", "imageID": "", "ready": False, "restartCount": 0,
        "started": False, "state": state, "lastState": last,
    }  # fmt: skip


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"reason": reason, "message": message} if message else {"reason": reason}
    return pod(conditions=[scheduled()], containerStatuses=[container(waiting=state, **more)])


UNSCHEDULABLE = pod(conditions=[scheduled("False", reason="Unschedulable", message=NO_NODE)])
UP = container(running={"startedAt": "2026-01-01T00:00:00Z"})
RUNNING = pod("p-9", phase="Running", conditions=[scheduled()], containerStatuses=[UP])


@pytest.mark.parametrize(
    "fine",
    [
        pod(),
        {"metadata": {"name": "without-status"}},
        pod(conditions=[scheduled("False", reason="SchedulingGated", message="waits")]),
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        RUNNING,
        {**UNSCHEDULABLE, "metadata": {"name": "leaves", "deletionTimestamp": "now"}},
        {**UNSCHEDULABLE, "status": {**UNSCHEDULABLE["status"], "phase": "Failed"}},
    ],
    ids=["new", "no status", "gated", "creating", "initializing", "running", "leaving", "evicted"],
)
def test_a_pod_that_starts_runs_or_leaves_has_no_problem(fine: dict[str, Any]) -> None:
    assert start_problem([fine]) is None
    assert readiness(LACKING, None, start_problem([fine])).reason is PoolReason.WORKERS_STARTING


@pytest.mark.parametrize(
    ("stuck", "reason", "said"),
    [
        (UNSCHEDULABLE, "Unschedulable", "3 node(s) didn't match Pod's node affinity/selector"),
        (waiting("ImagePullBackOff", BACK_OFF), "ImagePullBackOff", "absent:v1"),
        (waiting("ErrImagePull", "no such\n host"), "ErrImagePull", "no such host; check"),
        (waiting("ErrImageNeverPull", "not present with pull policy of Never"),
         "ErrImageNeverPull", "pull policy of Never"),
        (waiting("InvalidImageName", 'couldn\'t parse image name "A b"'),
         "InvalidImageName", "spec.image"),
        (waiting("CreateContainerConfigError", 'secret "hub" not found'),
         "CreateContainerConfigError", 'secret "hub" not found; create what the message names'),
        (waiting("CrashLoopBackOff", "back-off 20s restarting failed container=worker",
                 lastState={"terminated": {"exitCode": 3, "reason": "Error"}}),
         "CrashLoopBackOff", "exit code 3 (Error); read the container's last lines"),
        (waiting("RunContainerError", "exec: no such file"),
         "WorkersStuck", "RunContainerError: exec: no such file; see the pod's events"),
        (waiting("CreateContainerError"),
         "WorkersStuck", "CreateContainerError: container worker: CreateContainerError"),
    ],
)  # fmt: skip
def test_the_ready_condition_has_the_reason_and_message_of_the_pod(
    stuck: dict[str, Any], reason: str, said: str
) -> None:
    ready = readiness(LACKING, None, start_problem([RUNNING, stuck]))
    assert (ready.holds, ready.reason) == (False, reason)
    assert ready.message.startswith("0 of 2 workers are connected: pod p-1: ")
    assert said in ready.message


class Pods:
    """An API server with these pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods

    async def list(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return list(self.pods)


class NoWorkers:
    """A fleet without any."""

    def workers(self, _: str) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("stuck", "reason"),
    [
        (UNSCHEDULABLE, "Unschedulable"),
        (waiting("ErrImagePull", "not found"), "ErrImagePull"),
        (waiting("ErrImageNeverPull", "not present"), "ErrImageNeverPull"),
        (waiting("ImagePullBackOff", BACK_OFF), "ImagePullBackOff"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_condition_names_the_reason_at_the_first_look_at_the_pod(
    stuck: dict[str, Any], reason: str
) -> None:
    mirror = InformerCache()
    meta = {"resourceVersion": "1", "generation": 1}
    obj = pool_object({"minReplicas": 1})
    obj["metadata"] |= meta
    mirror.update("pools", "ADDED", obj)
    status_api = Patched(mirror, kind="pools")
    api = Pods(stuck)
    vars(api)["patch_status"] = status_api.patch_status
    given: dict[str, Any] = {"fleet": NoWorkers(), "epoch": Third()}
    others: dict[str, Any] = dict.fromkeys(("reservations", "signals"))
    settings: Any = SimpleNamespace(pod_environment=AROUND)
    catalog = load_catalog()
    controller = PoolController(
        cast("Any", api), mirror, settings, **given, **others, catalog=catalog
    )
    made = parse_object(obj)
    assert isinstance(made, FlowMeshWorkerPool)
    entry = PoolEntry.of(made, catalog)
    entry.figures = PoolNumbers(wanted=1)
    await controller._look_for_problem(entry)
    await controller._write_status(entry)
    (written,) = mirror.pools.values()
    (ready,) = [c for c in written["status"]["conditions"] if c["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert ready["lastTransitionTime"] == "1970-01-01T00:16:40Z"  # now, as the third epoch has it


def test_a_problem_is_looked_for_again_within_seconds() -> None:
    assert ROUND_S + PROBLEM_INTERVAL_S <= 3.0


def test_a_sidecar_that_cannot_start_counts_too() -> None:
    sidecar = container("code", waiting={"reason": "ImagePullBackOff", "message": BACK_OFF})
    initializing = container(waiting={"reason": "PodInitializing"})
    found = start_problem([pod(initContainerStatuses=[sidecar], containerStatuses=[initializing])])
    assert found is not None
    assert found.reason is PoolReason.IMAGE_PULL_BACK_OFF


def test_of_several_problems_the_most_common_is_shown_with_the_number_of_its_pods() -> None:
    def named(name: str, base: dict[str, Any]) -> dict[str, Any]:
        return {**base, "metadata": {"name": name}}

    pull = waiting("ImagePullBackOff", BACK_OFF)
    found = start_problem([named("c", pull), named("b", pull), named("a", UNSCHEDULABLE)])
    assert isinstance(found, StartProblem)
    assert found.reason is PoolReason.IMAGE_PULL_BACK_OFF
    assert found.message.startswith("pod b (and 1 more): Back-off pulling image")
    tie = start_problem([named("a", pull), named("b", UNSCHEDULABLE)])
    assert tie is not None
    assert tie.reason is PoolReason.UNSCHEDULABLE


def test_a_problem_of_pods_is_shown_also_where_workers_have_not_come_for_long() -> None:
    figures = PoolNumbers(wanted=2, supply=0)
    failed = {"type": "Progressing", "status": "False", "message": "exceeded its deadline"}
    deployment = {"status": {"conditions": [failed]}}
    assert readiness(figures, deployment, start_problem([UNSCHEDULABLE])).reason == "Unschedulable"
    assert readiness(figures, deployment).reason is PoolReason.WORKERS_STUCK


def test_a_pool_is_not_ready_while_workers_cannot_reach_the_store() -> None:
    figures = PoolNumbers(
        wanted=2, connected=2, without_store=1, store_problem="p-1: refused (403)"
    )
    ready = readiness(figures, None)
    assert (ready.holds, ready.reason) == (False, PoolReason.STORE_UNREACHABLE)
    assert ready.message == (
        "1 of 2 workers cannot reach the store and take no work: p-1: refused (403)"
    )


def test_a_pool_with_enough_workers_is_ready_whatever_other_pods_say() -> None:
    enough = PoolNumbers(wanted=2, connected=2)
    assert readiness(enough, None, start_problem([UNSCHEDULABLE])).holds
