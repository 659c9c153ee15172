"""Three workflows at once, and whether everything of them happened once and is in the books."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from e2e.harness.fabric import Fabric
from e2e.harness.kube import Json, until

CHAINS = 3
LENGTH = 4
SECONDS = 2.0
NANO = Decimal("1e-9")


def chains(seconds: float = SECONDS, query: str = "") -> dict[str, Any]:
    """Chains of steps that take a while: at any moment some are published and some run.

    Args:
        seconds: what each step takes.
        query: of a step that depends on nothing, besides.
    """
    steps: list[dict[str, Any]] = [
        {
            "name": f"c{chain}-{n}",
            "uses": "test.sleep",
            "with": {"seconds": seconds, "value": f"{chain}/{n}"},
            **({"inputs": {"before": f"c{chain}-{n - 1}.metrics"}} if n else {}),
        }
        for chain in range(CHAINS)
        for n in range(LENGTH)
    ]
    if query:
        steps.append({"name": "query", "uses": "data.sql", "with": {"query": query}})
    return {"steps": steps}


class Load:
    """The same work in three namespaces, which share nothing."""

    NAME = "chains"

    def __init__(self, fabric: Fabric, teams: Sequence[str], spec: Mapping[str, Any]) -> None:
        """Submits it."""
        self.fabric = fabric
        self.teams = teams
        self.steps = len(spec["steps"])
        for team in teams:
            fabric.submit(team, self.NAME, spec)

    def statuses(self) -> list[Json]:
        """How far each is."""
        found = self.fabric.kube.items("fmw", "--all-namespaces")
        by_team = {o["metadata"]["namespace"]: o.get("status") or {} for o in found}
        return [by_team.get(team, {}) for team in self.teams]

    def half_way(self, within_s: float = 120.0) -> None:
        """Waits until each has published something, and runs something."""
        until(lambda: all(map(_half, self.statuses())), "some is done and some runs", within_s)

    def goes_on(self, within_s: float = 180.0) -> Callable[[], tuple[float, float]]:
        """Looks from now on; the answer waits, and gives two times in seconds.

        Returns:
            When each workflow had completed a step that it had not now, and when all ended.
        """
        start = time.monotonic()
        before = [_completed(status) for status in self.statuses()]

        def further() -> bool:
            now = map(_completed, self.statuses())
            return all(n > b or n == self.steps for n, b in zip(now, before, strict=True))

        def measured() -> tuple[float, float]:
            until(further, "each workflow goes on", within_s)
            went_on = time.monotonic() - start
            for team in self.teams:
                self.fabric.finished(team, self.NAME, within_s)
            return went_on, time.monotonic() - start

        return measured

    def happened_once(self) -> None:
        """Everything completed, nothing that was published ran again, and the books agree."""
        for team, status in zip(self.teams, self.statuses(), strict=True):
            assert status["phase"] == "Succeeded", json.dumps(status, indent=1)
            assert status["counts"]["completed"] == self.steps
            assert status["executed"] == self.steps, "something that was published ran again"
            assert status.get("hits", 0) == 0
            receipt = self.answer(team, "receipt", self.NAME)
            assert receipt["executed"] == self.steps, receipt
            paid = sum(line.get("paid_nanousd", 0) for line in receipt["lines"])
            assert receipt["paid_nanousd"] == paid > 0
            assert abs(Decimal(status["costUsd"]) - paid * NANO) < Decimal("1e-6")
        fabric = self.answer(self.teams[0], "receipt", "--all")["fabric"]
        parts = ("receipts_nanousd", "fabric_nanousd", "unsettled_nanousd")
        assert fabric["bill_nanousd"] == sum(fabric[part] for part in parts), fabric

    def failed_attempts(self) -> int:
        """How many attempts the three paid for that failed."""
        receipts = [self.answer(team, "receipt", self.NAME) for team in self.teams]
        return sum(line.get("failed_attempts", 0) for r in receipts for line in r["lines"])

    def answer(self, team: str, *words: str) -> Any:
        """What ``kubectl fmesh`` answers, with the administrator's rights."""
        done = subprocess.run(
            [sys.executable, "-m", "flowmesh_cli.kubectl", *words, "--namespace", team, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.fabric.kube.kubeconfig)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def _completed(status: Json) -> int:
    return int((status.get("counts") or {}).get("completed", 0))


def _half(status: Json) -> bool:
    counts = status.get("counts") or {}
    return _completed(status) >= CHAINS and int(counts.get("running", 0)) > 0
