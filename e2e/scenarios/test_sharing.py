"""Two namespaces with overlapping workflows: separate by default, sharing under a policy."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from e2e.harness.fabric import Fabric
from e2e.harness.kube import Json

POLICY = "e2e-research"


def overlapping(own: str) -> dict[str, Any]:
    """Returns a step that both namespaces have, and one of only this namespace."""
    return {
        "steps": [
            {"name": "common", "uses": "test.sleep", "with": {"seconds": 1, "value": "common"}},
            {
                "name": "own",
                "uses": "test.noop",
                "inputs": {"before": "common.metrics"},
                "with": {"value": own},
            },
        ]
    }


@pytest.fixture
def policy(fabric: Fabric) -> Iterator[Callable[[list[str]], None]]:
    """Lets namespaces share until the test ends."""

    def make(namespaces: list[str]) -> None:
        fabric.kube.apply(
            {
                "apiVersion": "flowmesh.dev/v1alpha1",
                "kind": "FlowMeshCachePolicy",
                "metadata": {"name": POLICY},
                "spec": {"scope": "group", "group": POLICY, "namespaces": {"names": namespaces}},
            }
        )

    yield make
    fabric.kube.run("delete", "fmcp", POLICY, "--ignore-not-found")


def test_nothing_is_shared_between_namespaces_by_default(
    fabric: Fabric, tenant: Callable[[], str]
) -> None:
    first, second = tenant(), tenant()
    for team in (first, second):
        fabric.submit(team, "work", overlapping(team))
    done = [fabric.completed(team, "work") for team in (first, second)]
    assert [ran_and_hit(s) for s in done] == [(2, 0), (2, 0)]


def test_under_a_policy_the_common_step_runs_once_and_is_paid_once(
    fabric: Fabric, tenant: Callable[[], str], policy: Callable[[list[str]], None]
) -> None:
    first, second = tenant(), tenant()
    policy([first, second])
    fabric.submit(first, "work", overlapping(first))
    before = fabric.completed(first, "work")
    fabric.submit(second, "work", overlapping(second))
    after = fabric.completed(second, "work")
    assert ran_and_hit(before) == (2, 0)
    assert ran_and_hit(after) == (1, 1)
    assert row(after, "common")["hits"] == 1
    assert Decimal(row(after, "common").get("costUsd") or 0) == 0
    assert Decimal(after["savedUsd"]) > 0
    assert Decimal(before["costUsd"]) > Decimal(after["costUsd"])


def ran_and_hit(status: Json) -> tuple[int, int]:
    """Returns the numbers of executions and hits; a status omits zeros."""
    return status.get("executed", 0), status.get("hits", 0)


def row(status: Json, path: str) -> Json:
    found: Json = next(r for r in status["steps"] if r["path"] == path)
    return found
