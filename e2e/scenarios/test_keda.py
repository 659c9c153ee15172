"""A real KEDA scales a pool to and from zero, on the operator's own metric."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from e2e.cluster.project_images import THIN
from e2e.harness import own_cluster
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.keda import keda
from e2e.harness.kube import Json, condition, until
from e2e.harness.machine import Machine
from e2e.harness.pools import pool
from e2e.harness.timeline import Timeline

pytestmark = pytest.mark.full
HERE = f"--namespace={NAMESPACE}"
POOL, BOUND = "keda", 3
SCALED = f"flowmesh-pool-{POOL}"
LABELS = {"scaled-by": "keda"}
SPEC = {
    "image": THIN.name,
    "imagePullPolicy": "Never",
    "engines": {"flavor": "thin"},
    "maxReplicas": BOUND,
    "resources": {"cpu": 0.25, "memory": "2Gi"},
    "labels": LABELS,
    "userCode": True,
    "cache": {"sizeLimit": "1Gi"},
    "drainGrace": "10s",
    "autoscaling": {"mode": "keda", "targetBacklog": "10s", "scaleDownAfter": "5s"},
}
"""Its workers run users' code, and that one at a time: so work needs workers."""
CODE = """
import time
def main(seconds, value):
    time.sleep(seconds)
    return [{"value": value}]
"""
LONG_S, SHORT_S, SHORT = 180.0, 8.0, 18
COST = "controller.kubernetes.io/pod-deletion-cost"
MARKED = "-1000"


@pytest.fixture
def told_of_keda(fabric: Fabric, machine: Machine) -> Iterator[Fabric]:
    """Yields a release configured for KEDA, whose image is loaded but which is not installed."""
    del machine  # the image is in the e2e cluster only
    own_cluster.load_keda()
    fabric.install("keda.enabled=true")
    yield fabric
    fabric.install()


def test_a_pool_reports_missing_keda_and_scales_to_three_and_back_once_it_is_installed(
    told_of_keda: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    fabric, team = told_of_keda, tenant()
    with pool(fabric, POOL, SPEC):
        until(lambda: scaling(fabric).get("reason") == "NoKeda", "the pool says what is missing")
        assert "install KEDA and set keda.enabled" in scaling(fabric)["message"]
    with keda(fabric.kube) as took_s:
        print_line(f"KEDA was installed and answered after {took_s:.1f} s")
        with by_keda(fabric):
            marks, gone = under_load(fabric, team)
            assert scaling(fabric)["reason"] == "ByKeda"
    print_line("by KEDA: " + ", ".join(f"{k} {v:.1f} s" for k, v in marks.items()))
    assert len(gone) >= BOUND
    assert set(gone.values()) == {MARKED}, f"some that were not marked as idle went: {gone}"


def under_load(fabric: Fabric, team: str) -> tuple[dict[str, float], Mapping[str, str]]:
    """Checks the pool from zero to its maximum, to one worker with a long step, to zero.

    Returns:
        The times, and the deletion cost of each deleted pod.
    """
    assert not fabric.workers(POOL)
    line, pods = Timeline(fabric.kube.kubeconfig), Pods()
    line.follow_pods(NAMESPACE, pods)
    line.start()
    fabric.submit(team, "short", {"steps": [code(f"s{n}", SHORT_S) for n in range(SHORT)]})
    line.mark("applied")
    until(lambda: f"worker {BOUND} joined" in line.marks(), "the pool is at its bound", 240)
    fabric.submit(team, "long", {"steps": [sleep("long", LONG_S)], "priority": 100})
    until(lambda: running(fabric, team, "long"), "the long one runs")
    short = fabric.completed(team, "short", 240)
    line.mark("short ones complete")
    until(lambda: len(stay(fabric)) == 1, "idle workers go", 180)
    line.mark("one worker left")
    (busy,) = stay(fabric)
    assert running(fabric, team, "long"), "it ended before the others went"
    long = fabric.completed(team, "long", LONG_S)
    line.mark("long one complete")
    assert stay(fabric) == [busy]
    assert (long["executed"], short["executed"]) == (1, SHORT)
    until(lambda: not stay(fabric), "the last worker goes", 180)
    line.mark("none left")
    line.end()
    return line.marks(), pods.gone


@contextmanager
def by_keda(fabric: Fabric) -> Iterator[None]:
    """Yields a pool that KEDA scales; waits afterwards until KEDA has released it."""
    try:
        with pool(fabric, POOL, SPEC):
            until(lambda: scaling(fabric).get("reason") == "ByKeda", "KEDA looks at the pool", 120)
            yield
    finally:
        until(lambda: not fabric.kube.get("scaledobject", SCALED, HERE), "KEDA has let it go")


def stay(fabric: Fabric) -> list[str]:
    """Returns the pool's workers that are not being deleted."""
    metas = [worker["metadata"] for worker in fabric.workers(POOL)]
    return sorted(meta["name"] for meta in metas if "deletionTimestamp" not in meta)


def scaling(fabric: Fabric) -> Json:
    return condition(fabric.kube.get("fmwp", POOL, HERE), "Scaling")


def running(fabric: Fabric, team: str, name: str) -> bool:
    counts = fabric.status(team, name).get("counts") or {}
    return int(counts.get("running", 0)) > 0


def sleep(name: str, seconds: float) -> dict[str, Any]:
    """Returns a step without users' code, which a worker would run one at a time."""
    given = {"seconds": seconds, "value": name}
    return {"name": name, "uses": "test.sleep", "with": given, "resources": {"labels": LABELS}}


def code(name: str, seconds: float) -> dict[str, Any]:
    args = {"seconds": seconds, "value": name}
    given = {"code": CODE, "args": args, "timeoutS": 2 * LONG_S, "memoryMib": 128}
    return {"name": name, "uses": "code.python", "with": given}


class Pods:
    """Marks when the pool's pods are created and ready; records deletion costs."""

    def __init__(self) -> None:
        self.gone: dict[str, str] = {}
        self._ready: set[str] = set()

    def __call__(self, line: Timeline, pod: Mapping[str, Any]) -> None:
        found: Json = dict(pod)
        meta = found["metadata"]
        if (meta.get("labels") or {}).get("flowmesh.dev/pool") != POOL:
            return
        if "deletionTimestamp" in meta:
            self.gone.setdefault(meta["name"], (meta.get("annotations") or {}).get(COST, ""))
            return
        line.mark("first pod made")
        if condition(found, "Ready").get("status") == "True":
            self._ready.add(meta["uid"])
            line.mark(f"worker {len(self._ready)} joined")
