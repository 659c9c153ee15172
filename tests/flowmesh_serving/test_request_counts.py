"""What a router reports of a service: outcomes, misses, and totals that only grow."""

import math
import random

import msgspec

from flowmesh_core.protocol.router_reports import ReplicaProfile, RouterReport, ServiceReport
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.serving.plan.report_check import check_report
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.request_counts import RequestCounts

SERVICE = "team-a/ask"
PLACED = {SERVICE: {"team-a/ask/rank/r1/0": "w0"}}


def test_each_outcome_counts_as_what_it_says_about_the_target() -> None:
    counts = RequestCounts()
    counts.target_s = 1.0
    late = [
        counts.end(outcome, seconds)
        for outcome in ("ok", "failed", "refused", "cancelled", "client-slow", "invalid")
        for seconds in (0.5, 1.0, 1.5)
    ]
    assert late == [s for kept in (1, 1, 0, 1, 0, 0) for s in (False, False, bool(kept))]
    found = counts.report(SERVICE, ())
    assert (found.came, found.ended, found.missed, found.refused) == (18, 7, 3, 3)
    assert found.invalid == 3
    assert sum(found.latency) == 3


def test_streams_count_against_the_targets_of_their_tokens() -> None:
    metrics = RouterMetrics()
    metrics.use({SERVICE: ServiceEntry(SERVICE, "ask", ttft_s=1.5, tpot_s=0.05)})
    one = metrics.of_service(SERVICE)
    for first_s, token_s in ((0.5, 0.02), (1.5, 0.05), (1.6, 0.06), (1.7, 0.04)):
        with one.track_in_flight():
            one.begin_stream(first_s)
            one.end_stream(token_s)
        one.count("ok", 1.0)
    found = one.counts.report(SERVICE, ())
    assert (found.streamed, found.missed_ttft) == (4, 2)
    assert (found.token_timed, found.missed_tpot) == (4, 1)
    assert check_report(RouterReport("a", 1.0, (found,)), PLACED).ignored == 0
    for wrong in ({"missed_ttft": 5}, {"missed_tpot": 5}, {"token_timed": 5}, {"streamed": -1}):
        changed = msgspec.structs.replace(found, **wrong)
        assert check_report(RouterReport("a", 1.0, (changed,)), PLACED).ignored == 1
    text = metrics.text({}).decode()
    assert f'ttft_missed_total{{service="{SERVICE}"}} 2.0' in text
    assert f'tpot_missed_total{{service="{SERVICE}"}} 1.0' in text
    assert f'slo_miss_rate{{service="{SERVICE}"}} 0.01' in text


def test_without_a_target_nothing_is_late() -> None:
    counts = RequestCounts()
    assert not counts.end("ok", 1e6)
    assert not counts.begin_stream(1e6)
    assert not counts.end_stream(1e6)
    assert counts.report(SERVICE, ()).missed == 0


def test_what_a_router_reports_passes_the_check_and_only_grows() -> None:
    rng = random.Random(2)
    metrics = RouterMetrics()
    metrics.use({SERVICE: ServiceEntry(SERVICE, "ask", slo_s=0.5)})
    one, before = metrics.of_service(SERVICE), ServiceReport(SERVICE)
    for _ in range(300):
        with one.track_in_flight():
            running = one.counts.report(SERVICE, ())
        one.count(
            rng.choice(["ok", "failed", "refused", "cancelled", "invalid"]), rng.expovariate(2.0)
        )
        for report in (running, one.counts.report(SERVICE, ())):
            checked = check_report(RouterReport("a", 1.0, (report,)), PLACED)
            assert checked.ignored == 0
            assert report.came >= before.came
            before = report
    text = metrics.text({}).decode()
    assert f'slo_missed_total{{service="{SERVICE}"}} {before.missed}.0' in text
    assert f'slo_miss_rate{{service="{SERVICE}"}} 0.01' in text


def test_a_deleted_service_is_reported_no_more() -> None:
    metrics = RouterMetrics()
    metrics.use({SERVICE: ServiceEntry(SERVICE, "ask", slo_s=0.5)})
    metrics.of_service(SERVICE).count("ok", 0.1)
    metrics.use({})
    assert not metrics.counts()
    assert "slo_miss_rate{" not in metrics.text({}).decode()


def test_what_no_honest_router_says_is_left_out_and_the_rest_counts() -> None:
    good = ServiceReport(SERVICE, came=3, ended=2, missed=1, latency=(1, 1))
    profile = ReplicaProfile("team-a/ask/rank/r1/0", (1, 2), (0.1, 0.15), 2)
    for change in (
        {"came": -1},
        {"missed": 3},
        {"ended": 4},
        {"refused": 2},
        {"invalid": 2},
        {"invalid": -1},
        {"latency": (2, 1)},
        {"latency": (0,) * 1_000},
        {"came": 1 << 60},
        {"service": "team-b/other"},
    ):
        wrong = msgspec.structs.replace(good, **change)
        checked = check_report(RouterReport("a", 1.0, (wrong, good)), PLACED)
        if wrong.service == SERVICE:
            assert checked.report is not None
            assert checked.report.services == (good,)
        assert checked.ignored == 1, change
    for change in (
        {"replica_id": "team-a/ask/rank/r1/1"},
        {"sizes": (2, 3)},
        {"sizes": (1, 1)},
        {"sizes": (1,)},
        {"seconds": (0.1, 0.0)},
        {"seconds": (0.1, math.inf)},
        {"seconds": (0.1, math.nan)},
        {"cap": 0},
        {"call_lengths": (1.0,) * 17},
        {"call_lengths": (0.0, 1.0)},
        {"call_lengths": (math.nan,)},
        {"sizes": tuple(range(1, 101)), "seconds": (0.1,) * 100},
    ):
        bad = msgspec.structs.replace(profile, **change)
        one = msgspec.structs.replace(good, replicas=(bad,))
        checked = check_report(RouterReport("a", 1.0, (one,)), PLACED)
        assert checked.report is not None
        assert (checked.report.services, checked.ignored) == ((good,), 1), change
    for report in (RouterReport("", 1.0), RouterReport("a" * 65, 1.0), RouterReport("a", -1.0)):
        assert check_report(report, PLACED).report is None
    kept = msgspec.structs.replace(good, replicas=(profile,))
    assert check_report(RouterReport("a", 1.0, (kept,)), PLACED).report is not None
