"""A quarter of an hour of work: the leader's memory and its metric series stay where they are."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from e2e.harness.fabric import Fabric, workflow
from e2e.harness.kube import Json, until
from e2e.harness.leader import cpu_and_memory, series
from e2e.harness.machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.timeout(7200)]

A_WAVE = 12
GROWTH = 0.06
"""Of what it was after a third of the time, by the slope: a line of each ended run stays."""
MIB = 1 << 20
TTL_S = 20


def test_a_soak_leaves_memory_and_series_where_they_are(
    fabric: Fabric,
    machine: Machine,
    tenant: Callable[[], str],
    told: Callable[[str], None],
    soak_s: float,
) -> None:
    teams = [tenant() for _ in range(3)]
    start = time.monotonic()
    seen: list[tuple[float, float, int]] = []
    waves = 0
    while time.monotonic() - start < soak_s:
        wave(fabric, teams, waves)
        waves += 1
        memory = cpu_and_memory(fabric, machine)[1] / MIB
        seen.append((time.monotonic() - start, memory, series(fabric)))
    settled = [s for s in seen if s[0] >= soak_s / 3]
    hours = [at / 3600 for at, _, _ in settled]
    slope, _ = statistics.linear_regression(hours, [memory for _, memory, _ in settled])
    before = max(count for at, _, count in seen if at < soak_s / 3)
    after = max(count for _, _, count in settled)
    grown = slope * (hours[-1] - hours[0])
    told(
        f"soak of {soak_s / 60:.0f} min, {waves * A_WAVE} workflows: the leader's memory"
        f" {seen[0][1]:.0f} MiB after the first wave, {settled[0][1]:.0f} after a third,"
        f" {settled[-1][1]:.0f} at the end, slope {slope:.1f} MiB/h; series {before} in the first"
        f" third, {after} after it"
    )
    assert grown < GROWTH * settled[0][1], f"{grown:.1f} MiB more: {settled}"
    assert after <= before, settled


def wave(fabric: Fabric, teams: list[str], number: int) -> None:
    """Work of every kind that a thin worker does, a failure too; new and repeated."""
    names = [f"w{number}-{n}" for n in range(A_WAVE)]
    fabric.kube.apply(
        *(workflow(teams[n % len(teams)], name, spec(number, n)) for n, name in enumerate(names))
    )
    until(lambda: over(fabric, set(names)), f"wave {number} is over", 120)


def over(fabric: Fabric, names: set[str]) -> bool:
    """Whether all have ended; those that ended some time ago are gone."""
    found: list[Json] = fabric.kube.items("fmw", "--all-namespaces")
    mine = [o for o in found if o["metadata"]["name"] in names]
    return all((o.get("status") or {}).get("phase") in ("Succeeded", "Failed") for o in mine)


def spec(number: int, n: int) -> dict[str, Any]:
    query = "select sum(n) as total from rows" if n else "select sum(nothing_such) from rows"
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
