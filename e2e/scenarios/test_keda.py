"""A real KEDA scales a pool to and from zero, on the operator's own metric."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from e2e.harness import own_cluster
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.keda import keda
from e2e.harness.kube import Json, condition, until
from e2e.harness.machine import Machine
from e2e.harness.timeline import Timeline

pytestmark = pytest.mark.full
HERE = f"--namespace={NAMESPACE}"
POOL, BOUND = "thin", 3
SCALED = f"flowmesh-pool-{POOL}"
LONG_S, SHORT_S, SHORT = 150.0, 8.0, 24
COST = "controller.kubernetes.io/pod-deletion-cost"
MARKED = "-1000"


@pytest.fixture
def told_of_keda(fabric: Fabric, machine: Machine) -> Iterator[Fabric]:
    """A release that was told of KEDA, which is not there; its image is."""
    del machine  # the image is in our own cluster only
    own_cluster.load_keda()
    fabric.install("keda.enabled=true")
    yield fabric
    fabric.install()


def test_a_pool_says_that_there_is_no_keda_and_goes_from_zero_to_three_and_back_by_one(
    told_of_keda: Fabric, tenant: Callable[[], str], told: Callable[[str], None]
) -> None:
    fabric, team = told_of_keda, tenant()
    with by_keda(fabric):
        until(lambda: scaling(fabric).get("reason") == "NoKeda", "the pool says what is missing")
        assert "install KEDA and set keda.enabled" in scaling(fabric)["message"]
    until(lambda: not fabric.workers(POOL), "the pool has no worker", 120)
    with keda(fabric.kube) as took_s:
        told(f"KEDA was installed and answered after {took_s:.1f} s")
        with by_keda(fabric):
            until(lambda: seen_by_keda(fabric), "KEDA has looked at the pool", 120)
            until(lambda: scaling(fabric).get("reason") == "ByKeda", "the pool says so")
            marks, gone = under_load(fabric, team)
            assert scaling(fabric)["reason"] == "ByKeda"
    told("by KEDA: " + ", ".join(f"{k} {v:.1f} s" for k, v in marks.items()))
    assert gone, "workers went"
    assert set(gone.values()) == {MARKED}, f"some that were not marked as idle went: {gone}"


def under_load(fabric: Fabric, team: str) -> tuple[dict[str, float], Mapping[str, str]]:
    """From zero to the bound, to the one that is busy for long, to zero; the times.

    Returns:
        The times, and what each pod that went was marked with.
    """
    line, pods = Timeline(fabric.kube.kubeconfig), Pods()
    line.follow_pods(NAMESPACE, pods)
    line.start()
    fabric.submit(team, "long", {"steps": [sleep("long", LONG_S)]})
    fabric.submit(team, "short", {"steps": [sleep(f"s{n}", SHORT_S) for n in range(SHORT)]})
    line.mark("applied")
    until(lambda: f"worker {BOUND} joined" in line.marks(), "the pool is at its bound", 180)
    short = fabric.completed(team, "short", 240)
    line.mark("short ones complete")
    until(lambda: len(fabric.workers(POOL)) == 1, "idle workers go", 180)
    line.mark("one worker left")
    (busy,) = fabric.workers(POOL)
    assert fabric.status(team, "long")["phase"] == "Running", "it ended before the others went"
    long = fabric.completed(team, "long", LONG_S)
    line.mark("long one complete")
    assert [w["metadata"]["name"] for w in fabric.workers(POOL)] == [busy["metadata"]["name"]]
    assert (long["executed"], short["executed"]) == (1, SHORT)
    until(lambda: not fabric.workers(POOL), "the pool has no worker", 180)
    line.mark("none left")
    line.end()
    return line.marks(), pods.gone


@contextmanager
def by_keda(fabric: Fabric) -> Iterator[None]:
    """The pool in the mode ``keda``; afterwards KEDA has let go of it."""
    in_mode(fabric, "keda")
    try:
        yield
    finally:
        in_mode(fabric, "backlog")
        until(lambda: not fabric.kube.get("scaledobject", SCALED, HERE), "the mode is over")


def in_mode(fabric: Fabric, mode: str) -> None:
    patch = json.dumps({"spec": {"autoscaling": {"mode": mode}}})
    fabric.kube.run("patch", "fmwp", POOL, HERE, "--type=merge", f"--patch={patch}")


def scaling(fabric: Fabric) -> Json:
    return condition(fabric.kube.get("fmwp", POOL, HERE), "Scaling")


def seen_by_keda(fabric: Fabric) -> bool:
    found = fabric.kube.get("scaledobject", SCALED, HERE)
    return condition(found, "Ready").get("status") == "True"


def sleep(name: str, seconds: float) -> dict[str, Any]:
    return {"name": name, "uses": "test.sleep", "with": {"seconds": seconds, "value": name}}


class Pods:
    """Marks when pods of the pool are made and ready; notes what those that go are marked with."""

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
