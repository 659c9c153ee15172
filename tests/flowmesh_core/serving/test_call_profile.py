"""The times of an engine's calls are learned from warm calls, by how many run at once."""

import random

import pytest

from flowmesh_core.serving.call_profile import WARM_AFTER, CallProfile


def observed(*seconds: float, running: int = 1) -> CallProfile:
    """Has seen calls one after the other."""
    profile, now_s = CallProfile(), 0.0
    for took_s in seconds:
        profile.observe(now_s, now_s + took_s, running, tokens_out=0)
        now_s += took_s
    return profile


def test_first_calls_after_a_load_are_left_out() -> None:
    cold = [42.0, 9.0, 3.0]
    assert len(cold) == WARM_AFTER
    assert observed(*cold).profile is None
    found = observed(*cold, 0.02).profile
    assert found is not None
    assert found.at(1) == pytest.approx(0.02)


def test_calls_that_began_beside_the_first_are_left_out_too() -> None:
    profile = CallProfile()
    for n in range(20):
        profile.observe(0.1 * n, 30.0 + 0.1 * n, 8, tokens_out=0)
    assert profile.profile is None
    profile.observe(40.0, 40.02, 1, tokens_out=0)
    assert profile.profile is not None
    assert profile.profile.at(1) == pytest.approx(0.02)


def test_one_slow_call_says_little_and_a_slower_engine_is_learned() -> None:
    steady = [0.1] * 30
    once = observed(*steady, 40.0).profile
    assert once is not None
    assert once.at(1) <= 0.13
    slower = observed(*steady, *[0.5] * 60).profile
    assert slower is not None
    assert slower.at(1) == pytest.approx(0.5, rel=0.05)


def test_times_are_of_the_number_that_run() -> None:
    """The oracle is an engine whose calls take 20 ms, and 5 ms more for each beside them."""
    rng = random.Random(7)
    profile, now_s = CallProfile(), 0.0
    for _ in range(400):
        running = rng.choice((1, 2, 4, 8))
        took_s = (0.015 + 0.005 * running) * rng.uniform(0.95, 1.05)
        profile.observe(now_s, now_s + took_s, running, tokens_out=0)
        now_s += took_s
    found = profile.profile
    assert found is not None
    assert found.sizes == (1, 2, 4, 8)
    for running in found.sizes:
        assert found.at(running) == pytest.approx(0.015 + 0.005 * running, rel=0.1)


def test_an_engine_that_generates_tokens_is_not_measured_by_its_calls() -> None:
    profile = observed(*[0.1] * 10)
    profile.observe(5.0, 6.0, 1, tokens_out=24)
    assert profile.profile is None
    profile.observe(6.0, 7.0, 1, tokens_out=0)
    assert profile.profile is None
