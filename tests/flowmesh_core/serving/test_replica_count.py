"""The number of replicas follows the measured demand, without swinging."""

from itertools import pairwise

import pytest

from flowmesh_core.serving.plan.replica_count import (
    FEWER_AFTER_S,
    ReplicaCapacity,
    ReplicaCount,
    count_replicas,
)

ONE = ReplicaCapacity(peak=100.0, knee=95.0)


def after(
    rates: list[float | None], *, least: int = 1, most: int = 8, wanted: int = 1
) -> list[int]:
    """Numbers of replicas, decided once a second."""
    count, numbers = ReplicaCount(wanted), []
    for second, rate in enumerate(rates):
        count = count_replicas(least, most, rate, ONE, count, float(second))
        numbers.append(count.wanted)
    return numbers


@pytest.mark.parametrize(("rate", "wanted"), [(0, 1), (60, 1), (61, 2), (240, 4), (4_000, 8)])
def test_replicas_keep_up_with_the_demand_at_60_percent_of_their_peak(
    rate: float, wanted: int
) -> None:
    assert after([rate])[-1] == wanted


def test_a_saturated_fleet_grows_until_it_keeps_up() -> None:
    """The measured rate is what the fleet can do, here up to 450 a second."""
    count = ReplicaCount(1)
    for second in range(20):
        rate = min(450.0, 100.0 * count.wanted)
        count = count_replicas(1, 20, rate, ONE, count, float(second))
    assert count.wanted == 8


def test_fewer_replicas_only_after_a_time_well_below_the_next_smaller_fleet() -> None:
    quiet = round(FEWER_AFTER_S)
    numbers = after([10.0] * (2 * quiet + 2), wanted=3)
    assert numbers[:quiet] == [3] * quiet
    assert numbers[quiet] == 2
    assert numbers[-1] == 1
    assert all(before - now <= 1 for before, now in pairwise(numbers))


def test_a_burst_within_the_time_starts_it_again() -> None:
    quiet = round(FEWER_AFTER_S)
    assert after([10.0] * (quiet - 1) + [170.0] + [10.0] * (quiet - 1), wanted=3)[-1] == 3


def test_a_demand_between_the_two_limits_changes_nothing() -> None:
    """Three serve up to 180; two would do below 114."""
    assert set(after([120.0] * 2000, wanted=3)) == {3}


def test_the_number_stays_within_its_limits_and_never_reaches_zero() -> None:
    assert after([0.0] * 5000, wanted=5)[-1] == 1
    assert after([0.0] * 5000, least=2, wanted=5)[-1] == 2
    assert after([9_999.0], most=3)[-1] == 3
    assert after([None], least=2, wanted=0)[-1] == 2


def test_an_unknown_demand_or_capacity_changes_nothing_and_says_so() -> None:
    count = count_replicas(1, 4, None, ONE, ReplicaCount(3), 0.0)
    assert (count.wanted, count.text) == (3, "its demand is not measured yet")
    assert count_replicas(1, 4, 99.0, None, ReplicaCount(3), 0.0).wanted == 3
