"""The step times of an engine are learned from what its replicas do."""

import os
import random
from collections.abc import Callable
from itertools import accumulate

import msgspec
import pytest

from flowmesh_core.serving.plan.load_meter import ENGINES_MAX, LoadMeter, ReplicaReading
from flowmesh_core.serving.plan.step_times import StepTimes
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.units import Digest

StepSeconds = Callable[[int], float]

BASE_S, CALL_S = 0.02, 0.002


def seconds(calls: float) -> float:
    """Seconds of a step of that engine."""
    return BASE_S + CALL_S * calls


def rate(calls: float) -> float:
    """Units a second of an engine whose steps take ``BASE_S`` and ``CALL_S`` for each call."""
    return calls / seconds(calls)


def reading(calls: int, units: int, name: str = "r0", cap: int = 16) -> ReplicaReading:
    return ReplicaReading(name, "llm", Digest("s"), "cpu", calls, units, cap)


def test_two_loads_predict_every_other() -> None:
    rng = random.Random(3)
    steps = StepTimes()
    for _ in range(100):
        calls = rng.choice((2.0, 5.0))
        steps = steps.observed(calls, seconds(calls) * rng.uniform(0.97, 1.03))
    profile = steps.profile(16)
    assert profile is not None
    for n in (1, 4, 8, 16):
        assert n / profile.at(n) == pytest.approx(rate(n), rel=0.1)


def test_one_load_alone_takes_calls_side_by_side_to_cost_nothing() -> None:
    assert StepTimes().profile(8) is None
    profile = StepTimes().observed(1.0, seconds(1)).profile(8)
    assert profile is not None
    assert profile.best_rate(8) == pytest.approx(8 * rate(1))


def test_an_engine_that_has_changed_is_learned_anew() -> None:
    steps = StepTimes()
    for factor in (1.0, 0.5):
        for n in range(300):
            calls = 1.0 + n % 7
            steps = steps.observed(calls, seconds(calls) / factor)
    profile = steps.profile(8)
    assert profile is not None
    assert 8 / profile.at(8) == pytest.approx(rate(8) / 2, rel=0.1)


class Calls:
    """Calls of one engine in virtual time, as its worker reports them.

    Each takes a step for each of its tokens, and a step as long as the calls that run say.
    """

    TOKENS = 20

    def __init__(self, dice: random.Random, arrivals_s: list[float], step_s: StepSeconds) -> None:
        self.meter = LoadMeter()
        self.running: list[tuple[float, int]] = []
        self.units, self.call_s, self.most = 0, 0.0, 0
        now_s, report_s, due = 0.0, 0.0, list(arrivals_s)
        while due or self.running:
            while due and due[0] <= now_s:
                self.running.append((due.pop(0), self.TOKENS))
            self.most = max(self.most, len(self.running))
            now_s += step_s(max(1, len(self.running)))
            left = [(began_s, tokens - 1) for began_s, tokens in self.running]
            self.running = [one for one in left if one[1]]
            for began_s, _ in (one for one in left if not one[1]):
                self.units += self.TOKENS
                self.call_s += now_s - began_s
            if now_s >= report_s:
                report_s = now_s + dice.uniform(0.8, 1.2)
                known = reading(len(self.running), self.units)
                known = msgspec.structs.replace(known, call_s=self.call_s)
                self.meter.observe([known], now_s)

    def profile(self) -> BatchProfile:
        found = self.meter.profile(Digest("s"), "cpu", 16)
        assert found is not None
        return found


def test_calls_side_by_side_are_not_taken_for_calls_after_each_other() -> None:
    """Two calls a second of half a second each: the number that runs is sampled once a second.

    Seconds that are made of the sampled number have its error, and were a line through 0: one call
    alone then took as long as the engine's whole rate allows.
    """
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    dice = random.Random(seed)
    even = [n / 2 for n in range(1200)]
    uneven = list(accumulate(dice.expovariate(2.0) for _ in range(1200)))
    for arrivals_s in (even, uneven):
        calls = Calls(dice, arrivals_s, lambda _: 0.0245)
        alone_s = calls.TOKENS * calls.profile().at(1)
        assert alone_s == pytest.approx(0.49, rel=0.1)
        at_once = calls.meter.calls_at_once(Digest("s"), "cpu")
        assert 0.5 < at_once <= calls.most
        assert 2 / calls.profile().at(2) > 1.5 / calls.profile().at(1), "side by side they gain"


def test_a_line_is_found_where_the_load_changes() -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    dice, arrivals_s, now_s = random.Random(seed), list[float](), 0.0
    while now_s < 3600:
        rate_per_s = 1.0 if now_s % 240 < 120 else 8.0
        now_s += dice.expovariate(rate_per_s)
        arrivals_s.append(now_s)
    found = Calls(dice, arrivals_s, seconds).profile()
    for running in (1, 2, 4):
        assert found.at(running) == pytest.approx(seconds(running), rel=0.15)


def test_demand_is_the_work_of_the_last_minute() -> None:
    meter = LoadMeter()
    for second in range(200):
        meter.observe([reading(4, 100 * second), reading(4, 50 * second, "r1")], float(second))
    assert meter.units_per_s("llm", 199.0) == pytest.approx(150.0, rel=0.02)
    for second in range(200, 300):
        meter.observe([reading(0, 19_900), reading(0, 9_950, "r1")], float(second))
    assert meter.units_per_s("llm", 299.0) == 0.0


def test_calls_that_wait_for_others_do_not_count_as_running() -> None:
    meter = LoadMeter()
    for second in range(30):
        meter.observe([reading(40, 100 * second, cap=10)], float(second))
    profile = meter.profile(Digest("s"), "cpu", 10)
    assert profile is not None
    assert profile.at(10) == pytest.approx(10 / 100)


def test_first_calls_of_an_instance_do_not_count_as_its_speed() -> None:
    """One cold call of 9 s for 10 units, and then calls too short to be seen as running."""
    meter = LoadMeter()
    for second in range(60):
        cold = second < 9
        units = 0 if cold else 10 * (second - 8)
        meter.observe([reading(int(cold), units)], float(second))
    assert meter.profile(Digest("s"), "cpu", 16) is None
    assert meter.units_per_s("llm", 59.0) == pytest.approx(10.0, rel=0.2), "the work does count"
    for second in range(60, 90):
        meter.observe([reading(1, 10 * (second - 8))], float(second))
    warm = meter.profile(Digest("s"), "cpu", 16)
    assert warm is not None
    assert warm.at(1) == pytest.approx(0.1, rel=0.1)


def test_an_instance_that_starts_again_counts_from_zero() -> None:
    meter = LoadMeter()
    for second in range(20):
        meter.observe([reading(1, 1000 + 10 * second)], float(second))
    for second in range(20, 40):
        meter.observe([reading(1, 10 * (second - 20))], float(second))
    assert meter.units_per_s("llm", 39.0) == pytest.approx(10.0, rel=0.05)


def test_a_component_without_replicas_has_no_demand() -> None:
    meter = LoadMeter()
    meter.observe([reading(1, 0)], 0.0)
    assert meter.units_per_s("llm", 5.0) is None, "too short a time to say"
    meter.observe([], 20.0)
    assert meter.units_per_s("llm", 40.0) is None


def test_a_bounded_number_of_engines_is_remembered() -> None:
    meter = LoadMeter()
    for n in range(ENGINES_MAX + 1):
        one = reading(1, 0)
        for second, units in ((0.0, 0), (10.0, 100), (20.0, 200)):
            now = msgspec.structs.replace(one, signature=Digest(f"s{n}"), units=units)
            meter.observe([now], 100.0 * n + second)
        meter.observe([], 100.0 * n + 30.0)
    assert meter.profile(Digest("s0"), "cpu", 16) is None
    assert meter.profile(Digest(f"s{ENGINES_MAX}"), "cpu", 16) is not None
