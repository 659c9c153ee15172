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
MODEL = "smollm2-135m-instruct"
EVERY_S = 4.0
SEED = 7
MISTAKES_EVERY = 9


@contextlib.contextmanager
def fabric_at_work(folder: Path, seconds: float) -> Iterator[Prometheus]:
    """Runs work for a number of seconds, then yields the Prometheus that scraped the fabric."""
    state = folder / "state"
    command = [sys.executable, "-m", "flowmesh_cli.main", "up", "--state-dir", str(state)]
    with (folder / "fabric.log").open("wb") as log:
        fabric = subprocess.Popen(
            [*command, "--workers", "2", "--price-usd-per-hour", "1.5"], stdout=log, stderr=log
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
    """Returns a workflow: a query, shared answers, own ones, and at times a text as a number."""
    rows = [{"n": i, "word": f"w{i % 7}"} for i in range(60)]
    wrong = number % MISTAKES_EVERY == 1 and tenant == "research"
    column = "word::int" if wrong else "n"
    query = f"select word, sum({column}) + {number // 2} as s from rows group by word"
    steps: list[dict[str, Any]] = [
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": query},
        },
        _asking("common", "Add one to {{ s }}:", 8),
        _asking(
            "own", f"{tenant}: a sentence with {{{{ word }}}} and {{{{ s }}}}.", rng.choice((8, 16))
        ),
    ]
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": f"{tenant}-{number}", "namespace": tenant},
        "spec": {
            "inputs": {"base": {"model": MODEL}, "numbers": {"rows": rows}},
            "steps": steps,
            "outputs": {"answers": "own.rows"},
            "budgetUsd": "0.50",
        },
    }


def _asking(name: str, prompt: str, tokens: int) -> dict[str, Any]:
    return {
        "name": name,
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "sum.rows"},
        "with": {"prompt": prompt, "maxTokens": tokens, "temperature": 0, "dtype": "float32"},
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
