"""The arithmetic of a HorizontalPodAutoscaler, by the documentation of Kubernetes."""

import pytest

from flowmesh_sim.policies.signals.horizontal_pod_autoscaler import HorizontalPodAutoscaler

MOST = 100


@pytest.mark.parametrize(
    ("metric", "current", "wanted", "why"),
    [
        (0, 0, 0, "nothing to do and no worker"),
        (1, 0, 1, "no worker has an infinite share of the target, so it is rounded up"),
        (17, 0, 3, "8 + 8 + 1"),
        (16, 2, 2, "exactly the target"),
        (17, 2, 2, "6 % above it is within the tolerance"),
        (18, 2, 3, "12 % above it is not, and 2.25 is rounded up"),
        (15, 2, 2, "6 % below it is within the tolerance"),
        (14, 2, 2, "12 % below it is not, and 1.75 is rounded up"),
        (8, 2, 1, "half of the target"),
        (88, 10, 10, "10 % above it is just within the tolerance"),
        (89, 10, 12, "11 % above it is not, and 11.1 is rounded up"),
        (0, 3, 0, "nothing to do"),
    ],
)
def test_the_metric_is_divided_by_the_target_and_rounded_up(
    metric: int, current: int, wanted: int, why: str
) -> None:
    assert HorizontalPodAutoscaler().recommend(float(metric), current) == wanted, why


def desired(autoscaler: HorizontalPodAutoscaler, metric: int, current: int, now_s: float) -> int:
    return autoscaler.desire(float(metric), current, now_s, minimum=0, maximum=MOST)


def test_a_pool_shrinks_to_the_largest_recommendation_of_the_last_five_minutes() -> None:
    autoscaler, seen = HorizontalPodAutoscaler(), []
    current = 4
    for tick, metric in enumerate([32, 0, 8, *[0] * 22]):
        current = desired(autoscaler, metric, current, tick * 15.0)
        seen.append(current)
    assert seen[:20] == [4] * 20, "4 was recommended less than 300 s ago"
    assert seen[20:22] == [1] * 2, "then 1 was, at 30 s"
    assert seen[22:] == [0] * 3


@pytest.mark.parametrize("window_s", [30.0, 60.0, 600.0])
def test_the_keep_alive_is_the_stabilization_window(window_s: float) -> None:
    autoscaler = HorizontalPodAutoscaler(window_s=window_s)
    assert desired(autoscaler, 16, 2, 0.0) == 2
    assert desired(autoscaler, 0, 2, window_s - 1.0) == 2
    assert desired(autoscaler, 0, 2, window_s) == 0


def test_a_pool_grows_at_once_by_four_workers_or_to_twice_as_many() -> None:
    autoscaler = HorizontalPodAutoscaler()
    assert [desired(autoscaler, 8 * MOST, n, 0.0) for n in (0, 2, 4, 10, 60)] == [4, 6, 8, 20, MOST]


def test_the_number_stays_within_the_pools_bounds() -> None:
    autoscaler = HorizontalPodAutoscaler()
    assert autoscaler.desire(800.0, 3, 0.0, minimum=1, maximum=5) == 5
    assert autoscaler.desire(0.0, 3, 900.0, minimum=1, maximum=5) == 1
    assert autoscaler.desire(0.0, 9, 900.0, minimum=1, maximum=5) == 5
