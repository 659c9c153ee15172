"""Runs a local fabric with work and a Prometheus that scrapes it: data for ``pictures``."""

import contextlib
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hack.dashboards.prometheus import Prometheus, scraping

TENANTS = ("search", "support", "research")
SHARING = {
    "name": "products",
    "scope": "group",
    "group": "products",
    "namespaces": ["search", "support"],
}
EVERY_S = 2.0
SEED = 7
MISTAKES_EVERY = 9


@contextlib.contextmanager
def fabric_at_work(folder: Path, seconds: float) -> Iterator[Prometheus]:
    """Runs work for a number of seconds, then yields the Prometheus that scraped the fabric."""
    state = folder / "state"
    command = [sys.executable, "-m", "flowmesh_cli.main", "up", "--state-dir", str(state)]
    with (folder / "fabric.log").open("wb") as log:
        fabric = subprocess.Popen(
            [*command, "--workers", "3", "--price-usd-per-hour", "1.5"], stdout=log, stderr=log
        )
    try:
        owner = _owner(fabric, state)
        with scraping(owner["url"], folder, token=owner["token"]) as server:
            _work(owner, seconds)
            yield server
    finally:
        fabric.terminate()
        fabric.wait(60)


def _owner(fabric: "subprocess.Popen[bytes]", state: Path) -> dict[str, Any]:
    while fabric.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((state / "owner").read_text(encoding="utf-8"))
            if found.get("url") and found.get("workers"):
                return dict(found)
        time.sleep(0.1)
    raise SystemExit("the fabric did not start")


def _work(owner: dict[str, Any], seconds: float) -> None:
    rng = random.Random(SEED)
    _call(owner, "PUT", "/v1/policies", [SHARING])
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for tenant in TENANTS:
            document = _workflow(tenant, number, rng)
            _call(owner, "POST", "/v1/runs", {"document": document, "resume": False})
        number += 1
        time.sleep(EVERY_S * rng.uniform(0.5, 1.5))


def _workflow(tenant: str, number: int, rng: random.Random) -> dict[str, Any]:
    """Returns a workflow: a query, slow steps that tenants share, and sometimes a wrong column."""
    rows = [{"n": i, "word": f"w{i % 7}"} for i in range(60)]
    wrong = number % MISTAKES_EVERY == 1 and tenant == "research"
    column = "missing" if wrong else "n"
    common = number // 2
    query = f"select word, sum({column}) + {common} as s from rows group by word"
    waits = [rng.uniform(0.2, 1.2) for _ in range(2)]
    steps: list[dict[str, Any]] = [
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": query},
        },
        {"name": "common", "uses": "test.sleep", "with": {"seconds": 0.8, "value": common}},
        *(
            {"name": f"own{i}", "uses": "test.sleep", "with": {"seconds": round(w, 2), "value": i}}
            for i, w in enumerate(waits)
        ),
    ]
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": f"{tenant}-{number}", "namespace": tenant},
        "spec": {
            "inputs": {"numbers": {"rows": rows}},
            "steps": steps,
            "outputs": {"sums": "sum.rows"},
            "budgetUsd": "0.05",
        },
    }


def _call(owner: dict[str, Any], method: str, path: str, body: Any) -> None:
    request = urllib.request.Request(
        owner["url"] + path,
        method=method,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {owner['token']}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()
