"""Earliest finish first is never more than one batch later than real shares of a device."""

import random
from collections.abc import Callable

from flowmesh_core.serving.queue.finish_order import ReadyBatch, next_batch

Job = tuple[float, float]
"""Arrival and seconds of a batch with the whole device."""


def with_shares(jobs: list[Job], share: float) -> list[float]:
    """When each batch of an instance ends with its share of the device alone, in order."""
    ends, end = [], 0.0
    for arrived, seconds in jobs:
        end = max(end, arrived) + seconds / share
        ends.append(end)
    return ends


def in_turns(
    instances: dict[str, tuple[float, list[Job]]],
    choose: Callable[[list[ReadyBatch], float], ReadyBatch | None],
) -> dict[str, list[float]]:
    """When each batch ends if one at a time has the whole device and ``choose`` decides which."""
    ends: dict[str, list[float]] = {name: [] for name in instances}
    predicted = dict.fromkeys(instances, 0.0)
    now = 0.0
    while any(len(ends[name]) < len(jobs) for name, (_, jobs) in instances.items()):
        waiting = {
            name: (share, *jobs[len(ends[name])])
            for name, (share, jobs) in instances.items()
            if len(ends[name]) < len(jobs)
        }
        ready = [
            ReadyBatch(name, arrived, seconds, share, predicted[name])
            for name, (share, arrived, seconds) in waiting.items()
            if arrived <= now
        ]
        chosen = choose(ready, now)
        if chosen is None:
            now = min(arrived for _, arrived, _ in waiting.values())
            continue
        predicted[chosen.instance] = chosen.finish_s
        now += chosen.seconds
        ends[chosen.instance].append(now)
    return ends


def random_instances(rng: random.Random) -> dict[str, tuple[float, list[Job]]]:
    count = rng.randint(2, 4)
    weights = [rng.uniform(0.1, 1) for _ in range(count)]
    instances: dict[str, tuple[float, list[Job]]] = {}
    for n, weight in enumerate(weights):
        arrived = 0.0
        jobs = []
        for _ in range(rng.randint(1, 6)):
            arrived += rng.expovariate(1.0)
            jobs.append((arrived, rng.uniform(0.05, 1.0)))
        instances[f"i{n}"] = (weight / sum(weights), jobs)
    return instances


def lateness(
    instances: dict[str, tuple[float, list[Job]]],
    choose: Callable[[list[ReadyBatch], float], ReadyBatch | None],
) -> float:
    """The most by which a batch ends later than with shares, in longest batches."""
    ends = in_turns(instances, choose)
    longest = max(seconds for _, jobs in instances.values() for _, seconds in jobs)
    return max(
        (real - shared) / longest
        for name, (share, jobs) in instances.items()
        for real, shared in zip(ends[name], with_shares(jobs, share), strict=True)
    )


def test_a_batch_is_at_most_one_other_batch_later_than_with_real_shares() -> None:
    rng = random.Random(8)
    worst = max(lateness(random_instances(rng), next_batch) for _ in range(5000))
    assert worst <= 1.0 + 1e-9


def test_order_of_arrival_would_be_later() -> None:
    """The bound above is not met by every order."""
    rng = random.Random(8)

    def by_arrival(ready: list[ReadyBatch], now: float) -> ReadyBatch | None:
        return min(ready, key=lambda batch: batch.arrived_s, default=None)

    assert max(lateness(random_instances(rng), by_arrival) for _ in range(500)) > 1.0


def test_demoted_work_waits_for_punctual_work() -> None:
    demoted = ReadyBatch("a", 0.0, 0.1, demoted=True)
    punctual = ReadyBatch("b", 0.0, 9.0)
    assert next_batch([demoted, punctual], 1.0) == punctual
    assert next_batch([demoted], 1.0) == demoted


def test_demoted_and_aged_work_goes_first_when_its_share_is_due() -> None:
    fresh = ReadyBatch("b", 9.0, 0.1, target_s=1.0)
    aged = ReadyBatch("c", 4.9, 9.0, target_s=1.0)
    assert next_batch([fresh, aged], 10.0) == fresh
    assert next_batch([fresh, aged], 10.0, background_due=True) == aged
    assert next_batch([fresh], 10.0, background_due=True) == fresh


def test_without_a_ready_batch_there_is_none() -> None:
    assert next_batch([], 0.0) is None
