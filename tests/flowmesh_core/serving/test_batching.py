"""Batches are the largest whose members can all be in time."""

import random

import pytest

from flowmesh_core.serving.plan.batch_caps import batch_cap
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.waiting_call import WaitingCall

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
MARGIN_S = 0.01


def random_queue(rng: random.Random) -> tuple[list[WaitingCall], BatchProfile]:
    sizes = range(1, rng.randint(2, 12))
    profile = BatchProfile.of({b: rng.uniform(0.005, 0.02) * (1 + b * 0.2) for b in sizes})
    calls = [
        WaitingCall(f"r{n}", rng.uniform(0.0, 3.0), rng.randint(1, 40), rng.choice((0.0, 0.05)))
        for n in range(rng.randint(0, 25))
    ]
    return calls, profile


def in_time(call: WaitingCall, batch_s: float, now_s: float) -> bool:
    """Whether all the call's visits at this pace end in time; product code divides instead."""
    end = now_s + batch_s * call.visits + call.rest_s + MARGIN_S
    return end <= call.deadline_s + 1e-12


def test_a_batch_is_the_largest_that_brute_force_finds() -> None:
    rng = random.Random(5)
    for _ in range(1000):
        queue, profile = random_queue(rng)
        cap, now = rng.randint(1, 12), rng.uniform(0, 1)
        formed = form_batch(queue, profile, cap, MARGIN_S, now)
        late = [c for c in queue if not in_time(c, profile.at(1), now)]
        others = [c for c in queue if c not in late]
        best = max(
            (
                b
                for b in range(1, cap + 1)
                if sum(in_time(c, profile.at(b), now) for c in others) >= b
            ),
            default=0,
        )
        assert len(formed.calls) == best
        assert all(in_time(c, profile.at(max(best, 1)), now) for c in formed.calls)
        assert sorted(c.id for c in formed.late) == sorted(c.id for c in late)


def test_the_earliest_deadlines_go_first() -> None:
    profile = BatchProfile.of({1: 1.0, 2: 1.1})
    queue = [WaitingCall("c", 9.0), WaitingCall("a", 3.0), WaitingCall("b", 5.0)]
    formed = form_batch(queue, profile, 2, 0.0, 0.0)
    assert [c.id for c in formed.calls] == ["a", "b"]


def test_a_call_that_a_larger_batch_would_make_late_is_not_in_it() -> None:
    profile = BatchProfile.of({1: 1.0, 2: 1.5, 3: 2.0})
    urgent = WaitingCall("urgent", 1.2)
    queue = [urgent, WaitingCall("b", 9.0), WaitingCall("c", 9.0), WaitingCall("d", 9.0)]
    formed = form_batch(queue, profile, 3, 0.0, 0.0)
    assert [c.id for c in formed.calls] == ["b", "c", "d"]
    assert formed.late == ()


def test_an_empty_queue_gives_an_empty_batch() -> None:
    formed = form_batch([], BatchProfile.of({1: 1.0}), 4, 0.0, 0.0)
    assert formed.calls == ()
    assert formed.late == ()


@pytest.mark.parametrize("seed", [6, FRESH])
def test_the_largest_batch_within_a_time_is_that_of_a_walk_over_all_sizes(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng = random.Random(seed)
    for _ in range(3000):
        sizes = sorted({1, *rng.choices(range(2, 40), k=rng.randint(0, 6))})
        profile = BatchProfile.of({b: rng.uniform(0.5, 2.0) * (1 + 0.05 * b) for b in sizes})
        cap, within_s = rng.randint(1, 60), rng.uniform(0.4, 5.0)
        walked = [b for b in range(1, cap + 1) if profile.at(b) <= within_s]
        assert profile.largest_within(within_s, cap) == max(walked, default=1)


def test_a_cap_is_within_the_target_the_memory_and_the_knee() -> None:
    profile = BatchProfile.of({1: 1.0, 2: 1.2, 4: 1.6, 8: 8.0})
    assert batch_cap(profile, 2.0, 16) == 4
    assert batch_cap(profile, 1.3, 16) == 2
    assert batch_cap(profile, 9.0, 3) == 3
    assert batch_cap(profile, 0.5, 16) == 1


def test_a_profile_that_falls_and_rises_again_is_read_to_its_end() -> None:
    """The measured numpy kernel 4 x 2048²: a stop at the first fall would choose 1."""
    kernel = BatchProfile.of({1: 2.4e-3, 2: 8.5e-3, 8: 10e-3, 32: 18e-3})
    assert kernel.knee() == 32
    assert batch_cap(kernel, 0.1, 64) == 32
