"""Three workflows at once, and checks that each action ran once and the accounts agree."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, TypeVar

from e2e.harness.fabric import NAMESPACE, Fabric, workflow
from e2e.harness.kube import Json, until

from flowmesh_api.v1.fabric import FabricStatus, WorkerStatus
from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.target import Target

CHAINS = 3
LENGTH = 6
SECONDS = 3.0
NANO = Decimal("1e-9")
ROUNDED = Decimal("1e-6")
"""A status has dollars to the millionth."""
_WORKERS = "--selector=flowmesh.dev/pool"
_Answer = TypeVar("_Answer")


def chains(seconds: float = SECONDS, query: str = "") -> dict[str, Any]:
    """Returns chains of slow steps: at any time some are published and some run.

    Args:
        seconds: the duration of each step.
        query: the query of an additional independent step.
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
    """The same work in three namespaces that share nothing."""

    NAME = "chains"

    def __init__(self, fabric: Fabric, teams: Sequence[str], spec: Mapping[str, Any]) -> None:
        """Submits the workflows."""
        self.fabric = fabric
        self.teams = teams
        with self.gateway():  # loads its libraries now, which takes seconds, and not during a fault
            pass
        self.steps = len(spec["steps"])
        fabric.kube.apply(*(workflow(team, self.NAME, spec) for team in teams))

    def statuses(self) -> list[Json]:
        """Returns the status of each workflow."""
        found = self.fabric.kube.items("fmw", "--all-namespaces")
        by_team = {o["metadata"]["namespace"]: o.get("status") or {} for o in found}
        return [by_team.get(team, {}) for team in self.teams]

    def half_way(self, within_s: float = 120.0) -> None:
        """Waits until each workflow has published something and runs something."""
        until(lambda: all(map(_half, self.statuses())), "some is done and some runs", within_s)

    def goes_on(self, within_s: float = 180.0) -> Callable[[], tuple[float, float]]:
        """Records the progress now; the returned function waits and returns two times in seconds.

        Returns:
            When each workflow had completed a further step, and when all had ended.
        """
        start = time.monotonic()
        before = [_completed(status) for status in self.statuses()]
        assert max(before) < self.steps, f"{before} of {self.steps} are done: nothing can go wrong"

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
        """Checks that all completed, nothing published ran again, and the accounts agree."""
        for status, receipt in zip(self.statuses(), self.receipts(), strict=True):
            assert status["phase"] == "Succeeded", json.dumps(status, indent=1)
            assert status["counts"]["completed"] == self.steps
            assert status["executed"] == self.steps, "something that was published ran again"
            assert status.get("hits", 0) == 0
            assert receipt.executed == self.steps, receipt
            assert receipt.paid_nanousd == sum(line.paid_nanousd for line in receipt.lines) > 0
            assert abs(Decimal(status["costUsd"]) - receipt.paid_nanousd * NANO) < ROUNDED
        books = self._get_from_leader(lambda http: http.get("/v1/fabric", FabricStatus))
        paid = books.receipts_nanousd + books.services_nanousd
        parts = paid + books.fabric_nanousd + books.unsettled_nanousd
        assert books.bill_nanousd == parts, books

    def receipts(self) -> list[Receipt]:
        """Returns each workflow's receipt."""
        return self._get_from_leader(
            lambda http: [http.get(f"/v1/runs/{uid}/receipt", Receipt) for uid in self._uids()]
        )

    def failed_attempts(self) -> int:
        """Returns the number of failed attempts of all workflows."""
        runs = self._get_from_leader(
            lambda http: [http.get(f"/v1/runs/{uid}", RunStatus) for uid in self._uids()]
        )
        return sum(step.attempts for run in runs for step in run.steps)

    def busy_worker(self) -> Json:
        """Returns the pod of a worker that runs something."""
        found: list[Json] = []

        def seen() -> bool:
            listed = self._get_from_leader(lambda http: http.get("/v1/workers", list[WorkerStatus]))
            running = {worker.shape.name for worker in listed if worker.state == "busy"}
            pods = self.fabric.kube.items("pods", f"--namespace={NAMESPACE}", _WORKERS)
            found[:] = [pod for pod in pods if pod["metadata"]["name"] in running]
            return bool(found)

        until(seen, "a worker is busy")
        return found[0]

    def _get_from_leader(self, ask: Callable[[ApiClient], _Answer]) -> _Answer:
        """Returns the leader's answer, also after a takeover."""
        answers: list[_Answer] = []

        def answered() -> bool:
            with suppress(FabricUnavailableError), self.gateway() as http:
                answers.append(ask(http))
            return bool(answers)

        until(answered, "the leader answers")
        return answers[0]

    def _uids(self) -> list[str]:
        return [self.fabric.look(team, self.NAME)["metadata"]["uid"] for team in self.teams]

    @contextmanager
    def gateway(self) -> Iterator[ApiClient]:
        """Yields the fabric's API through the API server, with the administrator's rights."""
        kubeconfig = self.fabric.kube.kubeconfig
        with query_fabric(
            Target(cluster=True, kubeconfig=kubeconfig, namespace=self.teams[0])
        ) as http:
            yield http


def _completed(status: Json) -> int:
    return int((status.get("counts") or {}).get("completed", 0))


def _half(status: Json) -> bool:
    counts = status.get("counts") or {}
    return _completed(status) > 0 and int(counts.get("running", 0)) > 0
