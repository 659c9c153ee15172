"""A real HorizontalPodAutoscaler scales a pool to and from zero, on the operator's own metric."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.harness.external_metrics import external_metrics
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import condition, until
from e2e.harness.machine import Machine
from e2e.harness.prometheus import run_prometheus

pytestmark = pytest.mark.full
POOL = "thin"
BOUND = 3
HPA = ("pools.thin.autoscaling.mode=hpa", "crds.upgrade=false")


@pytest.fixture
def by_hpa(fabric: Fabric, machine: Machine, tmp_path: Path) -> Iterator[Fabric]:
    """Yields the pool in the mode ``hpa``, with everything that its autoscaler needs."""
    del machine  # its cluster can reach this machine's addresses
    with (
        run_prometheus(fabric, tmp_path) as server,
        external_metrics(fabric.kube, server, tmp_path),
    ):
        fabric.install(*HPA)
        yield fabric
        fabric.install("crds.upgrade=false")
        until(lambda: not _autoscaler(fabric), "the autoscaler goes with the mode")


def test_a_pool_scales_from_zero_to_three_and_back_twice(
    by_hpa: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    fabric, team = by_hpa, tenant()
    until(lambda: bool(_autoscaler(fabric).get("status")), "the autoscaler looks at the pool")
    assert not fabric.workers(POOL)
    first = _from_zero(fabric, team, "first")
    start = time.monotonic()
    fabric.install(*HPA, f"pools.{POOL}.minReplicas={BOUND}")
    until(lambda: len(fabric.workers(POOL)) == BOUND, f"{BOUND} workers are asked for", 180)
    bound = time.monotonic() - start
    fabric.install(*HPA)
    back = until(lambda: not fabric.workers(POOL), "the pool shrinks to no worker", 240)
    assert _active(fabric), "it came to zero by itself, and goes on"
    again = _from_zero(fabric, team, "again")
    print_line(
        f"by a HorizontalPodAutoscaler: asked for the first worker after {first:.1f} s, for {BOUND}"
        f" after {bound:.1f} s (a helm upgrade in it), back to zero {back:.1f} s after nothing"
        f" asked for any; from the"
        f" zero that it came to, asked for a worker after {again:.1f} s"
    )
    pool = fabric.kube.get("fmwp", POOL, f"--namespace={NAMESPACE}")
    assert condition(pool, "Scaling")["reason"] == "ByHpa"


def _from_zero(fabric: Fabric, team: str, name: str) -> float:
    step = {"name": name, "uses": "test.sleep", "with": {"seconds": 1, "value": name}}
    fabric.submit(team, name, {"steps": [step]})
    took = until(lambda: len(fabric.workers(POOL)) > 0, "a worker is asked for", 180)
    fabric.completed(team, name, 300)
    return took


def _autoscaler(fabric: Fabric) -> dict[str, object]:
    return fabric.kube.get("hpa", f"flowmesh-pool-{POOL}", f"--namespace={NAMESPACE}")


def _active(fabric: Fabric) -> bool:
    return condition(_autoscaler(fabric), "ScalingActive").get("status") == "True"
