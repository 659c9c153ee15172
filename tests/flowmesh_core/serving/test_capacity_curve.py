"""Simulated loads against queueing formulas, and their use for planning."""

import random
from itertools import accumulate

import pytest

from flowmesh_core.serving.plan.capacity import PlannedReplica, bottleneck, requests_per_s
from flowmesh_core.serving.plan.capacity_curve import PlannedStage, simulate_load
from flowmesh_core.serving.profile import BatchProfile

ONE = BatchProfile.of({1: 1.0})
BATCHED = BatchProfile.of({1: 1.0, 8: 2.0})


def arrivals(rate: float, count: int = 2_000, seed: int = 4) -> list[float]:
    rng = random.Random(seed)
    return list(accumulate(rng.expovariate(rate) for _ in range(count)))


def lindley(times: list[float], service_s: float) -> list[float]:
    """Latencies of one server without batches, by Lindley's recursion."""
    latencies: list[float] = []
    wait = 0.0
    for before, now in zip([times[0], *times], times, strict=False):
        wait = max(0.0, wait + service_s - (now - before)) if latencies else 0.0
        latencies.append(wait + service_s)
    return sorted(latencies)


def test_one_replica_without_batches_is_a_single_server_queue() -> None:
    times = arrivals(0.7)
    point = simulate_load([PlannedStage((PlannedReplica(ONE, 1),))], times, 1e9)
    expected = lindley(times, 1.0)
    assert point.p50_s == pytest.approx(expected[len(expected) // 2])
    assert point.p99_s == pytest.approx(expected[len(expected) * 99 // 100])


def test_an_unloaded_request_takes_the_time_alone_and_the_handoffs() -> None:
    stages = [PlannedStage((PlannedReplica(BATCHED, 8),), 0.1)] * 3
    point = simulate_load(stages, [0.0, 100.0, 200.0], 3.3)
    assert point.p99_s == pytest.approx(3.3)
    assert point.miss_rate == 0.0


def test_late_replies_become_more_with_the_load_and_fewer_with_replicas() -> None:
    def misses(rate: float, replicas: int) -> float:
        stage = PlannedStage((PlannedReplica(BATCHED, 8),) * replicas)
        return simulate_load([stage], arrivals(rate), 4.0).miss_rate

    assert misses(1.0, 1) < 0.02
    assert misses(1.0, 1) <= misses(3.0, 1) < misses(6.0, 1)
    assert misses(6.0, 2) < misses(6.0, 1)


def test_batches_serve_a_load_that_single_calls_could_not() -> None:
    batched = PlannedStage((PlannedReplica(BATCHED, 8),))
    single = PlannedStage((PlannedReplica(BATCHED, 1),))
    times = arrivals(2.0)
    assert simulate_load([batched], times, 6.0).miss_rate < 0.05
    assert simulate_load([single], times, 6.0).miss_rate > 0.4


def test_a_components_rate_counts_replicas_shares_and_visits() -> None:
    replicas = [PlannedReplica(BATCHED, 8), PlannedReplica(BATCHED, 8, share=0.5)]
    assert requests_per_s(replicas, visits=2.0, utilisation=0.5) == pytest.approx(
        0.5 * (4.0 + 2.0) / 2.0
    )


def test_the_bottleneck_is_the_component_with_the_least_rate() -> None:
    components = {"fast": [PlannedReplica(BATCHED, 8)], "slow": [PlannedReplica(ONE, 1)]}
    name, rate = bottleneck(components, {"fast": 1.0, "slow": 1.0})
    assert name == "slow"
    assert rate == pytest.approx(0.6)
    assert bottleneck(components, {"fast": 8.0, "slow": 1.0})[0] == "fast"
