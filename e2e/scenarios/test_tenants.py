"""Tenants of one saturated pool: shares by weight, a reserved pool, and an unmeetable budget."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from e2e.harness.fabric import Fabric
from e2e.harness.kube import condition, until
from e2e.harness.pools import code_pool_spec, pool
from e2e.scenarios.test_growing import query, sleep

POOL = "shared"
QUERIES, BOTH_WAIT = 48, 40
ROWS = 25_000_000
"""Of a query that takes a sixth of a second of a processor; the worker runs one at a time."""


@pytest.fixture
def weigh(fabric: Fabric) -> Iterator[Callable[[str, float], None]]:
    """Gives namespaces weights until the test ends."""
    made: list[str] = []

    def make(namespace: str, weight: float) -> None:
        made.append(f"e2e-{namespace}")
        fabric.kube.apply(
            {
                "apiVersion": "flowmesh.dev/v1alpha1",
                "kind": "FlowMeshQuota",
                "metadata": {"name": made[-1]},
                "spec": {"namespaces": {"names": [namespace]}, "weight": weight},
            }
        )

    yield make
    fabric.kube.run("delete", "fmq", *made)


def test_weights_of_1_and_3_share_a_pool_that_takes_no_other_namespace(
    fabric: Fabric,
    tenant: Callable[[], str],
    weigh: Callable[[str, float], None],
    print_line: Callable[[str], None],
) -> None:
    light, heavy, other = tenant(), tenant(), tenant()
    weigh(light, 1)
    weigh(heavy, 3)
    spec = code_pool_spec(
        fabric,
        userCode=False,
        resources={"cpu": 0.5, "memory": "1Gi"},
        labels={"where": POOL},
        price={"usdPerHour": "0.36"},
        reservedFor={"names": [light, heavy]},
    )
    with pool(fabric, POOL, spec):
        fabric.submit(other, "work", work(1))
        fabric.submit(light, "work", work(QUERIES))
        fabric.submit(heavy, "work", work(QUERIES))
        fabric.completed(heavy, "work", 240)
        until(lambda: ends(fabric, light)[-1:] > ends(fabric, heavy)[-1:], "the light one goes on")
        # Both have work that waits until then; the worker takes the last ones of each early.
        end = ends(fabric, heavy)[BOTH_WAIT - 1]
        paid = [paid_usd(fabric, team, end) for team in (light, heavy)]
        print_line(f"weights 1 and 3: ${paid[0]} and ${paid[1]} of a saturated pool")
        (waiting,) = fabric.status(other, "work")["steps"]
        assert (waiting["state"], waiting["reason"]) == ("READY", "reserved")
        assert f"pool {POOL}, which is reserved for other namespaces" in waiting["message"]
        fabric.kube.run("delete", "fmw", "work", f"--namespace={light}")
    (waiting,) = fabric.status(other, "work")["steps"]
    assert waiting["state"] == "READY", "nor did the deleted pool's worker take it before its end"
    assert 2.4 < paid[1] / paid[0] < 3.6


def test_an_applied_budget_that_cannot_be_met_is_refused_with_the_figures(
    fabric: Fabric, tenant: Callable[[], str]
) -> None:
    team = tenant()
    fabric.submit(team, "poor", {"steps": [sleep("long", 60)], "budgetUsd": "0.000000001"})

    def accepted() -> dict[str, Any]:
        return condition(fabric.look(team, "poor"), "Accepted")

    until(lambda: accepted().get("status") == "False", "the workflow is refused")
    figures = (
        r"spec.budgetUsd: expected to cost at least \$0\.\d+, and the budget is \$0\.000000001"
    )
    assert accepted()["reason"] == "Unmeetable"
    assert re.match(figures, accepted()["message"]), accepted()["message"]
    fabric.kube.run(
        *("patch", "fmw", "poor", f"--namespace={team}", "--type=merge"),
        '--patch={"spec": {"budgetUsd": "1"}}',
    )
    until(lambda: accepted().get("status") == "True", "a larger budget is accepted")
    fabric.kube.run("delete", "fmw", "poor", f"--namespace={team}")


def work(queries: int) -> dict[str, Any]:
    """Returns queries for the pool, all of about the same cost."""
    where = {"resources": {"labels": {"where": POOL}}}
    return {"steps": [{**query(f"q{n}", ROWS + n), **where} for n in range(queries)]}


def ends(fabric: Fabric, namespace: str) -> list[str]:
    """Returns when the steps of a tenant ended, in order."""
    return sorted(row["endedAt"] for row in ended(fabric, namespace))


def paid_usd(fabric: Fabric, namespace: str, until_time: str) -> Decimal:
    """Returns what a tenant paid for the steps that ended until then."""
    rows = [row for row in ended(fabric, namespace) if row["endedAt"] <= until_time]
    return sum((Decimal(row["costUsd"]) for row in rows), Decimal(0))


def ended(fabric: Fabric, namespace: str) -> list[dict[str, Any]]:
    """Returns the ended steps of a tenant's workflow."""
    steps = fabric.status(namespace, "work").get("steps") or []
    return [row for row in steps if row.get("endedAt")]
