"""A real HorizontalPodAutoscaler scales a pool to and from zero, on the operator's own metric."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.harness.external_metrics import external_metrics
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import condition, until
from e2e.harness.machine import Machine
from e2e.harness.scraped import scraped

pytestmark = pytest.mark.full
POOL = "thin"
SLEEPERS = 6
WORK_S = 20.0


@pytest.fixture
def by_hpa(fabric: Fabric, machine: Machine, tmp_path: Path) -> Iterator[Fabric]:
    """The pool in the mode ``hpa``, and what a HorizontalPodAutoscaler needs besides."""
    del machine  # its cluster is within reach of this machine's addresses
    with (
        scraped(fabric, tmp_path) as server,
        external_metrics(fabric.kube, server, tmp_path),
    ):
        _set_mode(fabric, "hpa")
        yield fabric
        _set_mode(fabric, "backlog")
        until(lambda: not _autoscaler(fabric), "the autoscaler goes with the mode")


def test_a_pool_goes_from_zero_to_three_and_back(
    by_hpa: Fabric, tenant: Callable[[], str], told: Callable[[str], None]
) -> None:
    fabric, team = by_hpa, tenant()
    until(lambda: bool(_autoscaler(fabric).get("status")), "the autoscaler looks at the pool")
    assert not fabric.workers(POOL)
    steps = [
        {"name": f"s{n}", "uses": "test.sleep", "with": {"seconds": WORK_S + n}}
        for n in range(SLEEPERS)
    ]
    fabric.submit(team, "sleepers", {"steps": steps})
    first = until(lambda: len(fabric.workers(POOL)) > 0, "the first worker is asked for", 180)
    most = until(lambda: len(fabric.workers(POOL)) == 3, "three workers are asked for", 180)
    fabric.completed(team, "sleepers", 300)
    status = fabric.status(team, "sleepers")
    assert status["executed"] == SLEEPERS
    back = until(lambda: not fabric.workers(POOL), "the pool shrinks to no worker", 240)
    told(
        f"by a HorizontalPodAutoscaler: asked for the first worker after {first:.1f} s, for three"
        f" {most:.1f} s later, back to zero {back:.1f} s after the end"
    )
    assert _active(fabric), "it came to zero by itself, and goes on"
    second = _from_zero(fabric, team)
    told(f"from the zero that it came to: the first worker asked for after {second:.1f} s")
    pool = fabric.kube.get("fmwp", POOL, f"--namespace={NAMESPACE}")
    assert condition(pool, "Scaling")["reason"] == "ByHpa"


def _from_zero(fabric: Fabric, team: str) -> float:
    step = {"name": "again", "uses": "test.sleep", "with": {"seconds": 1, "value": "again"}}
    fabric.submit(team, "again", {"steps": [step]})
    took = until(lambda: len(fabric.workers(POOL)) > 0, "a worker is asked for once more", 180)
    fabric.completed(team, "again", 300)
    return took


def _set_mode(fabric: Fabric, mode: str) -> None:
    patch = json.dumps({"spec": {"autoscaling": {"mode": mode}}})
    fabric.kube.run(
        "patch", "fmwp", POOL, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={patch}"
    )


def _autoscaler(fabric: Fabric) -> dict[str, object]:
    return fabric.kube.get("hpa", f"flowmesh-pool-{POOL}", f"--namespace={NAMESPACE}")


def _active(fabric: Fabric) -> bool:
    return condition(_autoscaler(fabric), "ScalingActive").get("status") == "True"
