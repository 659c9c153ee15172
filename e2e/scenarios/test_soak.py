"""A quarter of an hour of work: the leader's memory and its metric series stay stable.

Memory is measured after a third of the time, when pools, pages and the allocator's heaps are warm:
the minimum of each minute, which excludes uncollected garbage, and of those the median slope over
all pairs. Each ended run may leave one line of half a KiB, and at most 20,000 of them; a leak of
runs, actions or objects would leave tens of KiB per workflow. The limit is between the two, and is
per workflow, not per time, because a slower machine ends fewer.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from e2e.harness.fabric import NAMESPACE, OPERATORS, Fabric, workflow
from e2e.harness.kube import Json, until
from e2e.harness.leader import processes, resident, series
from e2e.harness.machine import Machine
from e2e.harness.stability import lows, sampled, slope_per_s

pytestmark = [pytest.mark.full, pytest.mark.timeout(7200)]

A_WAVE = 36
WARM = 1 / 3
"""Of the time."""
LOOK_S, WINDOW_S = 2.0, 60.0
MOST_KIB = 8.0
"""A workflow."""
KIB, MIB = 1 << 10, 1 << 20
TTL_S = 20


def test_memory_and_metric_series_do_not_grow_during_a_soak(
    fabric: Fabric,
    machine: Machine,
    tenant: Callable[[], str],
    print_line: Callable[[str], None],
    soak_s: float,
) -> None:
    teams = [tenant() for _ in range(3)]
    renew(fabric)
    leader, start = fabric.leader(), time.monotonic()
    found = processes(fabric, machine)
    ended: list[tuple[float, int]] = []
    with sampled(lambda: resident(found) / MIB, LOOK_S) as memory:
        while time.monotonic() - start < soak_s:
            wave(fabric, teams, len(ended))
            ended.append((time.monotonic() - start, series(fabric)))
    assert fabric.leader() == leader, "it was followed by another"
    warm = lows([sample for sample in memory if sample[0] >= WARM * soak_s], WINDOW_S)
    slope = slope_per_s(warm)
    rate = A_WAVE * len(ended) / ended[-1][0]
    print_line(
        f"soak of {soak_s / 60:.0f} min, {A_WAVE * len(ended)} workflows: the least of the leader's"
        f" memory in each minute, MiB: {', '.join(f'{low:.1f}' for _, low in lows(memory, 60))};"
        f" slope after a third {slope * 3600:.1f} MiB/h, {slope * 1024 / rate:.2f} KiB a workflow;"
        f" series {sorted({count for _, count in ended})}"
    )
    before = max(count for at, count in ended if at < WARM * soak_s)
    after = max(count for at, count in ended if at >= WARM * soak_s)
    assert slope * MIB / rate < MOST_KIB * KIB, warm
    assert after <= before, ended


def renew(fabric: Fabric) -> None:
    """Starts a new leader: free space in the heaps of an old one would hide growth."""
    before = fabric.leader()
    words = ("delete", "pods", f"--namespace={NAMESPACE}", f"--selector={OPERATORS}")
    fabric.kube.run(*words)
    until(lambda: fabric.leaders() not in ([], [before]), "another leads")


def wave(fabric: Fabric, teams: list[str], number: int) -> None:
    """Returns work of every kind for thin workers, new and repeated, with a failure."""
    names = [f"w{number}-{n}" for n in range(A_WAVE)]
    fabric.kube.apply(
        *(workflow(teams[n % len(teams)], name, spec(number, n)) for n, name in enumerate(names))
    )
    until(lambda: over(fabric, set(names)), f"wave {number} is over", 120)


def over(fabric: Fabric, names: set[str]) -> bool:
    """Returns whether all have ended; workflows that ended long ago are deleted."""
    found: list[Json] = fabric.kube.items("fmw", "--all-namespaces")
    mine = [o for o in found if o["metadata"]["name"] in names]
    return all((o.get("status") or {}).get("phase") in ("Succeeded", "Failed") for o in mine)


def spec(number: int, n: int) -> dict[str, Any]:
    what = "n" if n else "cast('nothing_such' as int)"
    query = f"select sum({what}) as total from rows"
    return {
        "ttlSecondsAfterFinished": TTL_S,
        "inputs": {"numbers": {"rows": [{"n": number if n % 2 else i} for i in range(10)]}},
        "steps": [
            {"name": "new", "uses": "test.noop", "with": {"value": f"{number}/{n}"}},
            {"name": "sum", "uses": "data.sql", "inputs": {"rows": "inputs.numbers"},
             "with": {"query": query}},
            {"name": "last", "uses": "test.noop", "inputs": {"before": "new.metrics"},
             "with": {"value": number}},
        ],
        "outputs": {"total": "sum.rows"},
    }  # fmt: skip
