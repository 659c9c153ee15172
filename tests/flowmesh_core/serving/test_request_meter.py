"""Requests of services from routers' totals: lost, repeated and reset reports, and windows."""

import random
from dataclasses import dataclass, field

import msgspec
import pytest

from flowmesh_core.protocol.router_reports import RouterReport, ServiceReport
from flowmesh_core.serving.latency_sketch import BOUNDS_S, BUCKETS, bucket_of, quantile_s
from flowmesh_core.serving.plan.request_meter import (
    NOTHING_SEEN,
    ROUTERS_MAX,
    WINDOW_S,
    RequestMeter,
)

SERVICE = "team-a/ask"


@dataclass
class Router:
    """A router that answers requests of one service."""

    name: str
    age_s: float = 0.0
    total: ServiceReport = field(default_factory=lambda: ServiceReport(SERVICE))

    def answer(self, latencies_s: list[float], target_s: float = 1.0) -> None:
        counts = [*self.total.latency, *[0] * (BUCKETS - len(self.total.latency))]
        for seconds in latencies_s:
            counts[bucket_of(seconds)] += 1
        self.total = msgspec.structs.replace(
            self.total,
            came=self.total.came + len(latencies_s),
            ended=self.total.ended + len(latencies_s),
            missed=self.total.missed + sum(s > target_s for s in latencies_s),
            latency=tuple(counts),
            streamed=self.total.streamed + len(latencies_s),
            missed_ttft=self.total.missed_ttft + sum(s > target_s / 2 for s in latencies_s),
            token_timed=self.total.token_timed + len(latencies_s[1:]),
            missed_tpot=self.total.missed_tpot + sum(s > target_s for s in latencies_s[1:]),
        )

    @property
    def report(self) -> RouterReport:
        return RouterReport(self.name, self.age_s, (self.total,))


def test_a_quantile_is_exact_to_a_fifth() -> None:
    rng = random.Random(3)
    times = sorted(rng.lognormvariate(-1, 1) for _ in range(2_000))
    counts = [0] * BUCKETS
    for seconds in times:
        counts[bucket_of(seconds)] += 1
    for share in (0.01, 0.5, 0.99, 1.0):
        exact = times[max(0, int(share * len(times)) - 1)]
        assert exact <= quantile_s(counts, share) <= exact * 1.2
    assert quantile_s([0] * BUCKETS, 0.5) == 0.0
    assert bucket_of(1e9) == BUCKETS - 1
    assert bucket_of(0.0) == 0
    assert BOUNDS_S[-1] > 600


def test_lost_and_repeated_reports_change_no_sum() -> None:
    rng = random.Random(8)
    whole, lossy = RequestMeter(), RequestMeter()
    routers = [Router("a"), Router("b")]
    now = 1_000.0
    for step in range(40):
        now += 5.0
        for router in routers:
            router.answer([rng.uniform(0.1, 2.0) for _ in range(rng.randint(0, 9))])
            router.age_s += 5.0
            whole.observe(router.report, now)
            if step == 39 or rng.random() < 0.6:
                lossy.observe(router.report, now)
                lossy.observe(router.report, now)
    a, b = whole.seen(SERVICE, now), lossy.seen(SERVICE, now)
    assert (a.ended, a.missed, a.latency) == (b.ended, b.missed, b.latency)
    assert a.ended == sum(r.total.ended for r in routers)
    assert a.missed == sum(r.total.missed for r in routers)
    for name in ("streamed", "missed_ttft", "token_timed", "missed_tpot"):
        assert getattr(a, name) == getattr(b, name) == sum(getattr(r.total, name) for r in routers)


def test_the_rate_is_of_the_last_minute_and_all_else_of_five() -> None:
    meter, router, now = RequestMeter(), Router("a"), 0.0
    for second in range(0, 600, 5):
        now = float(second)
        router.answer([0.1] * (50 if second < 300 else 10))
        router.age_s = now
        meter.observe(router.report, now)
    seen = meter.seen(SERVICE, now)
    assert seen.rate_per_s == pytest.approx(2.0)
    assert seen.ended == 600
    assert meter.seen(SERVICE, now + WINDOW_S) == NOTHING_SEEN
    assert meter.replies(SERVICE) == 3_600


def test_a_new_leader_does_not_count_what_an_old_router_counted_before() -> None:
    meter, router = RequestMeter(), Router("a", age_s=1_000.0)
    router.answer([2.0] * 500)
    meter.observe(router.report, 0.0)
    assert meter.seen(SERVICE, 0.0).ended == 0
    router.answer([0.1] * 3)
    meter.observe(router.report, 5.0)
    assert (meter.seen(SERVICE, 5.0).ended, meter.seen(SERVICE, 5.0).missed) == (3, 0)


def test_totals_that_shrink_are_a_new_beginning_and_take_nothing_away() -> None:
    meter, router = RequestMeter(), Router("a")
    router.answer([0.1] * 10)
    meter.observe(router.report, 0.0)
    router.total = ServiceReport(SERVICE, came=1, ended=1)
    meter.observe(router.report, 5.0)
    assert meter.seen(SERVICE, 5.0).ended == 10
    router.total = ServiceReport(SERVICE, came=4, ended=4)
    meter.observe(router.report, 10.0)
    assert meter.seen(SERVICE, 10.0).ended == 13


def test_routers_are_bounded_and_silent_ones_are_forgotten() -> None:
    meter = RequestMeter()
    for number in range(ROUTERS_MAX):
        assert meter.observe(Router(f"r{number}").report, 0.0)
    assert not meter.observe(Router("more").report, 30.0)
    assert meter.observe(Router("r0").report, 30.0)
    assert meter.observe(Router("more").report, 61.0)


def test_a_deleted_service_is_forgotten() -> None:
    meter, router = RequestMeter(), Router("a")
    router.answer([0.1])
    meter.observe(router.report, 0.0)
    meter.keep(())
    assert meter.seen(SERVICE, 0.0) == NOTHING_SEEN
    assert meter.replies(SERVICE) == 0


def test_requests_that_their_callers_have_to_change_are_no_demand() -> None:
    meter = RequestMeter()
    total = ServiceReport(SERVICE, came=30, ended=10, refused=5, latency=(10,), invalid=15)
    assert meter.observe(RouterReport("r1", 1.0, (total,)), 0.0)
    found = meter.seen(SERVICE, 0.0)
    assert (found.came, found.ended, found.refused) == (15, 10, 5)
    assert found.rate_per_s == pytest.approx(3.0)
    assert found.taken_per_s == pytest.approx(2.0)


def test_a_request_that_is_found_invalid_after_it_was_counted_is_never_less_than_none() -> None:
    meter = RequestMeter()
    running = ServiceReport(SERVICE, came=1)
    for now_s in range(0, int(WINDOW_S), 30):
        assert meter.observe(RouterReport("r1", 1.0, (running,)), float(now_s))
    ended = ServiceReport(SERVICE, came=1, invalid=1)
    assert meter.observe(RouterReport("r1", 1.0, (ended,)), WINDOW_S - 1)
    assert meter.seen(SERVICE, WINDOW_S - 1).came == 0
    late = meter.seen(SERVICE, WINDOW_S + 1)
    assert (late.came, late.rate_per_s, late.taken_per_s) == (0, 0.0, 0.0)


def test_requests_in_flight_are_those_of_routers_that_still_report() -> None:
    meter = RequestMeter()
    for name, in_flight in (("r1", 3), ("r2", 4)):
        total = ServiceReport(SERVICE, came=5, in_flight=in_flight)
        meter.observe(RouterReport(name, 1.0, (total,)), 100.0)
    assert meter.seen(SERVICE, 101.0).in_flight == 7
    meter.observe(RouterReport("r1", 60.0, (ServiceReport(SERVICE, came=5, in_flight=1),)), 150.0)
    assert meter.seen(SERVICE, 161.0).in_flight == 1, "r2 is silent"
