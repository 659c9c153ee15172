"""NeuStream's batching against a reference written from the paper alone."""

import random
from collections.abc import Callable, Sequence

import pytest

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.batching import FormedBatch
from flowmesh_core.serving.queue.neustream import (
    form_batch_by_budget,
    form_batch_by_remaining_work,
)
from flowmesh_core.serving.queue.waiting_call import WaitingCall

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
FormBatch = Callable[[Sequence[WaitingCall], int], FormedBatch]
Waiting = tuple[str, float, list[float]]
"""A request: its name, when it was issued, the targets of its modules up to this one."""


def algorithm_1(
    latency: dict[int, float],
    target: float,
    waiting: list[tuple[str, float, list[float]]],
    now: float,
) -> tuple[list[str], list[str]]:
    """Algorithm 1 on requests in order of arrival."""
    limit = 1
    for size in sorted(latency):
        if latency[size] <= target:
            limit = size
    batch: list[str] = []
    dropped: list[str] = []
    for name, issued, targets in waiting:
        budget = sum(targets) - (now - issued)
        if budget < 0:
            dropped.append(name)
            continue
        if len(batch) < limit:
            batch.append(name)
    return batch, dropped


def random_targets(rng: random.Random) -> list[float]:
    return [rng.uniform(0, 0.6) for _ in range(rng.randint(1, 6))]


def differences(seed: int, form_batch: FormBatch) -> int:
    """How many of 1,000 random queues give another batch, or other drops, than Algorithm 1."""
    rng, found = random.Random(seed), 0
    for _ in range(1000):
        latency = {b: 0.01 + 0.002 * b for b in range(1, 21)}
        target, now = rng.uniform(0.005, 0.06), 10.0
        waiting = [
            (f"r{n}", now - rng.uniform(0, 3), random_targets(rng))
            for n in range(rng.randint(0, 40))
        ]
        calls = [
            WaitingCall(name, 0.0, budget_s=sum(targets) - (now - issued))
            for name, issued, targets in waiting
        ]
        formed = form_batch(calls, BatchProfile.of(latency).largest_within(target, 20))
        batch, dropped = algorithm_1(latency, target, waiting, now)
        found += ([c.id for c in formed.calls], [c.id for c in formed.late]) != (batch, dropped)
    return found


@pytest.mark.parametrize("seed", [3, FRESH])
def test_batches_and_drops_equal_algorithm_1(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    assert differences(seed, form_batch_by_budget) == 0


def without_drops(queue: Sequence[WaitingCall], limit: int) -> FormedBatch:
    return FormedBatch(tuple(queue[:limit]), ())


def without_a_limit(queue: Sequence[WaitingCall], limit: int) -> FormedBatch:
    del limit
    return form_batch_by_budget(queue, len(queue))


def newest_first(queue: Sequence[WaitingCall], limit: int) -> FormedBatch:
    return form_batch_by_budget(queue[::-1], limit)


@pytest.mark.parametrize("mistake", [without_drops, without_a_limit, newest_first])
def test_a_mistake_in_the_rule_would_differ(mistake: FormBatch) -> None:
    assert differences(3, mistake) > 100


def test_the_artifact_serves_calls_first_that_were_never_passed_over() -> None:
    profile = BatchProfile.of({1: 0.01})
    queue = [
        WaitingCall("old", 9.0, passed_over=2),
        WaitingCall("late", 0.5, visits=60),
        WaitingCall("new", 9.0),
        WaitingCall("once", 9.0, passed_over=1),
    ]
    formed = form_batch_by_remaining_work(queue, profile, 2, 0.0, 0.0)
    assert [c.id for c in formed.calls] == ["new", "once"]
    assert [c.id for c in formed.late] == ["late"]
