"""Faults while workflows run: everything completes, and nothing published runs again."""

import time
from collections.abc import Callable
from typing import Any

from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import condition, until

POOL = "thin"
CHAINS = 3
LENGTH = 4
TAKEOVER_S = 10.0


def chains(seconds: float) -> dict[str, Any]:
    """Chains of steps that take a while: at any moment some are published and some run."""
    steps = [
        {
            "name": f"c{chain}-{n}",
            "uses": "test.sleep",
            "with": {"seconds": seconds, "value": f"{chain}/{n}"},
            **({"inputs": {"before": f"c{chain}-{n - 1}.metrics"}} if n else {}),
        }
        for chain in range(CHAINS)
        for n in range(LENGTH)
    ]
    return {"steps": steps}


def half_way(fabric: Fabric, team: str, name: str) -> Callable[[], bool]:
    """Whether something is published and something runs."""

    def holds() -> bool:
        counts = fabric.status(team, name).get("counts") or {}
        return int(counts.get("completed", 0)) >= CHAINS and int(counts.get("running", 0)) > 0

    return holds


def test_a_worker_s_pod_is_deleted_and_the_work_goes_on(
    fabric: Fabric, tenant: Callable[[], str], told: Callable[[str], None]
) -> None:
    team = tenant()
    fabric.submit(team, "chains", chains(3))
    until(half_way(fabric, team, "chains"), "half of the work is done", 90)
    (victim, *_) = fabric.workers(POOL)
    name = victim["metadata"]["name"]
    fabric.kube.run(
        "delete", "pod", name, f"--namespace={NAMESPACE}", "--grace-period=0", "--force"
    )
    start = time.monotonic()
    status = fabric.completed(team, "chains", 180)
    told(f"worker's pod deleted: complete {time.monotonic() - start:.1f} s later")
    assert status["counts"]["completed"] == CHAINS * LENGTH
    assert status["executed"] == CHAINS * LENGTH, "something that was published ran again"


def test_the_leader_is_killed_and_a_standby_goes_on(
    fabric: Fabric, tenant: Callable[[], str], told: Callable[[str], None]
) -> None:
    team = tenant()
    fabric.submit(team, "chains", chains(3))
    until(half_way(fabric, team, "chains"), "half of the work is done", 90)
    (leader,) = fabric.leaders()
    epoch = fabric.status(team, "chains")["epoch"]
    fabric.kube.run(
        "delete", "pod", leader, f"--namespace={NAMESPACE}", "--grace-period=0", "--force"
    )
    took = until(lambda: leads_anew(fabric, leader), "another leads", 30)
    wrote = took + until(
        lambda: fabric.status(team, "chains")["epoch"] > epoch, "the new leader writes", 30
    )
    told(f"leader killed: another leads after {took:.1f} s, and writes after {wrote:.1f} s")
    assert took <= TAKEOVER_S
    status = fabric.completed(team, "chains", 180)
    assert status["counts"]["completed"] == CHAINS * LENGTH
    assert status["executed"] == CHAINS * LENGTH, "something that was published ran again"
    until(lambda: ready(fabric) == 2, "two operators are ready again", 60)


def leads_anew(fabric: Fabric, before: str) -> bool:
    now = fabric.leaders()
    return len(now) == 1 and now[0] != before


def ready(fabric: Fabric) -> int:
    found = fabric.kube.get("deployment", "flowmesh-operator", f"--namespace={NAMESPACE}")
    assert condition(found, "Available")
    return int(found["status"].get("readyReplicas", 0))
