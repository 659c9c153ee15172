"""Replicas of one host take turns in a simulated load, and a service's best rate counts that."""

import pytest

from flowmesh_core.serving.plan.capacity import PlannedReplica
from flowmesh_core.serving.plan.capacity_curve import (
    PlannedStage,
    best_rate_per_s,
    capacity_curve,
    poisson_arrivals,
    simulate_load,
)
from flowmesh_core.serving.profile import BatchProfile

ONE = BatchProfile.of({1: 1.0})


def stages(*hosts: str) -> list[PlannedStage]:
    return [PlannedStage((PlannedReplica(ONE, 1, host=host),)) for host in hosts]


def test_two_stages_of_one_host_serve_half_of_what_two_hosts_do() -> None:
    assert best_rate_per_s(stages("a", "b")) == pytest.approx(1.0)
    assert best_rate_per_s(stages("a", "a")) == pytest.approx(0.5)
    assert best_rate_per_s(stages("", "")) == pytest.approx(1.0), "each has a host of its own"
    two = PlannedStage((PlannedReplica(ONE, 1, host="a"), PlannedReplica(ONE, 1, host="b")))
    assert best_rate_per_s([two, *stages("a")]) == pytest.approx(2 / 3)
    same = PlannedStage((PlannedReplica(ONE, 1, host="a"), PlannedReplica(ONE, 1, host="a")))
    assert best_rate_per_s([same]) == pytest.approx(1.0)


def test_a_batch_waits_for_that_of_another_stage_in_its_host() -> None:
    for hosts, second_s in (("ab", 3.0), ("aa", 4.0)):
        point = simulate_load(stages(*hosts), [0.0, 0.0], 100.0)
        assert point.p50_s == second_s, "of two requests the later"
        assert simulate_load(stages(*hosts), [0.0], 100.0).p99_s == 2.0


def test_no_request_of_a_shared_host_is_lost() -> None:
    times = poisson_arrivals(0.4, 500)
    point = simulate_load(stages("a", "a", "b", "a"), times, 8.0)
    assert point.p50_s >= 4.0


def test_calls_of_an_engine_begin_while_others_run() -> None:
    profile = BatchProfile.of({1: 1.0, 2: 1.5})
    engine = PlannedStage((PlannedReplica(profile, 2, is_continuous=True),))
    point = simulate_load([engine], [0.0, 0.5, 0.5], 100.0)
    assert point.p99_s == pytest.approx(2.0), "the third begins when the first ends, at 1.0"
    assert point.p50_s == pytest.approx(1.5)
    batched = PlannedStage((PlannedReplica(profile, 2),))
    assert simulate_load([batched], [0.0, 0.5, 0.5], 100.0).p50_s == pytest.approx(2.0)


def test_arrivals_have_the_rate_and_the_spread_of_poisson() -> None:
    times = poisson_arrivals(5.0, 5_000)
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.05)
    variance = sum((g - mean) ** 2 for g in gaps) / len(gaps)
    assert variance**0.5 / mean == pytest.approx(1.0, rel=0.05)
    assert times == poisson_arrivals(5.0, 5_000)


def test_a_curve_gets_worse_with_the_load_and_is_bounded_in_requests() -> None:
    curve = list(capacity_curve(stages("a"), 4.0))
    assert [round(rate, 2) for rate, _ in curve] == [0.2, 0.4, 0.6, 0.8, 0.95]
    misses = [point.miss_rate for _, point in curve]
    assert misses == sorted(misses)
    assert misses[0] < 0.05 < misses[-1]
