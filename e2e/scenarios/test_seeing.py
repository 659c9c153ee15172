"""Every panel of the dashboards shows data of a real cluster, and every alert can be evaluated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.fabric import Fabric
from e2e.harness.kube import until
from e2e.harness.prometheus import run_prometheus
from hack.dashboards.ask import RULES, asked, refused, silent

pytestmark = pytest.mark.full

WINDOW = "10s"


def test_every_query_of_the_dashboards_has_data(
    fabric: Fabric, tenant: Callable[[], str], tmp_path: Path, print_line: Callable[[str], None]
) -> None:
    with run_prometheus(fabric, tmp_path, RULES) as server:
        work(fabric, [tenant() for _ in range(3)])
        quiet: list[str] = []

        def all_speak() -> bool:
            quiet[:] = [f"{q.panel}: {q.plain(WINDOW)}: {why}" for q, why in silent(
                server, window=WINDOW)]  # fmt: skip
            return not quiet

        try:
            until(all_speak, "every query gives a number", 30)
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *quiet])) from None
        assert refused(server) == []
    print_line(f"{len(list(asked()))} queries of the dashboards, each with data")


def work(fabric: Fabric, teams: list[str]) -> None:
    """Runs work with hits, a failure, and budgets, one of them of a run that is active."""
    first, second, third = teams
    for n in range(4):
        for team in (first, second):
            fabric.submit(team, f"sums-{n}", sums(f"sum(n) + {n}"))
            fabric.submit(team, f"sleep-{n}", {"steps": [sleep(0.5)]})
    fabric.submit(first, "broken", sums("sum(cast('nothing_such' as int))"))
    fabric.submit(third, "rich", {"steps": [sleep(90)], "budgetUsd": "2"})
    for n in range(4):
        for team in (first, second):
            fabric.completed(team, f"sums-{n}")
            fabric.completed(team, f"sleep-{n}")
    assert fabric.finished(first, "broken")["phase"] == "Failed"


def sums(what: str) -> dict[str, Any]:
    query = f"select {what} as total from rows"
    return {
        "inputs": {"numbers": {"rows": [{"n": n} for n in range(10)]}},
        "steps": [{"name": "sum", "uses": "data.sql", "inputs": {"rows": "inputs.numbers"},
                   "with": {"query": query}}],
        "outputs": {"total": "sum.rows"},
    }  # fmt: skip


def sleep(seconds: float) -> dict[str, Any]:
    return {"name": "sleep", "uses": "test.sleep", "with": {"seconds": seconds, "value": "same"}}
