"""A pool from zero to its bound and back, while one worker has a long step."""

from collections.abc import Callable
from typing import Any

import pytest
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until
from e2e.harness.timeline import Joined, Timeline

pytestmark = pytest.mark.full

POOL = "thin"
BOUND = 3
LONG_S, SHORT = 240.0, 24
ROWS = 150_000_000
"""Of a query that takes a second of a processor. A worker runs one at a time; sleeps, all."""


def test_a_pool_grows_to_its_maximum_and_never_removes_a_busy_worker(
    fabric: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    team = tenant()
    until(lambda: not fabric.workers(POOL), "the pool has no worker", 120)
    line = Timeline(fabric.kube.kubeconfig)
    line.follow_pods(NAMESPACE, Joined(POOL))
    line.start()
    fabric.submit(team, "long", {"steps": [sleep("long", LONG_S)]})
    fabric.submit(team, "short", {"steps": [query(f"q{n}", ROWS + n) for n in range(SHORT)]})
    line.mark("applied")
    until(lambda: f"worker {BOUND} joined" in line.marks(), "the pool is at its bound", 120)
    fabric.completed(team, "short", 240)
    line.mark("short ones complete")
    until(lambda: len(fabric.workers(POOL)) == 1, "idle workers go", 120)
    line.mark("one worker left")
    (busy,) = fabric.workers(POOL)
    assert fabric.status(team, "long")["phase"] == "Running", "it ended before the others went"
    status = fabric.completed(team, "long", LONG_S)
    line.mark("long one complete")
    assert [w["metadata"]["name"] for w in fabric.workers(POOL)] == [busy["metadata"]["name"]]
    assert status["executed"] == 1
    until(lambda: not fabric.workers(POOL), "the pool has no worker", 120)
    line.mark("none left")
    line.end()
    print_line("growing: " + ", ".join(f"{k} {v:.1f} s" for k, v in line.marks().items()))


def query(name: str, rows: int) -> dict[str, Any]:
    text = f"select max(hash(i) % 1000) as most from range({rows}) t(i)"
    return {"name": name, "uses": "data.sql", "with": {"query": text}}


def sleep(name: str, seconds: float) -> dict[str, Any]:
    return {"name": name, "uses": "test.sleep", "with": {"seconds": seconds, "value": name}}
