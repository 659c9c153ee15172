"""Whether a service meets its SLO: from its stages' times, and from late replies beyond chance."""

import math

import pytest

from flowmesh_core.serving.plan.request_meter import SeenRequests
from flowmesh_core.serving.plan.slo_verdict import (
    SloReason,
    SloTargets,
    SloVerdict,
    slo_verdict,
)

PROBLEM = "rank takes at least 300 ms, the target is 100 ms; stage rank alone takes 300 ms of it"


def verdict(ended: int, missed: int = 0, *, rate: float = 0.01, **known: str) -> SloVerdict:
    return slo_verdict(SloTargets(0.1), rate, SeenRequests(ended=ended, missed=missed), **known)


@pytest.mark.parametrize(
    ("ended", "missed", "holds"),
    [
        (0, 0, None),
        (19, 0, None),
        (20, 0, True),
        (1, 1, None),  # one late reply of one happens once in a hundred
        (2, 2, False),
        (20, 1, None),
        (20, 3, False),
        (99, 1, None),
        (100, 1, True),
        (100, 2, False),
        (10_000, 100, True),
        (10_000, 101, False),
    ],
)
def test_few_replies_say_little_and_many_say_all(
    ended: int, missed: int, holds: bool | None
) -> None:
    found = verdict(ended, missed)
    assert found.holds is holds
    assert (found.reason is SloReason.FEW_REQUESTS) is (holds is None)


def test_a_service_that_keeps_its_rate_is_rarely_called_late() -> None:
    """The oracle is the binomial distribution, summed here for each number of late replies."""
    for ended in (1, 5, 20, 50, 99):
        wrong = sum(
            math.comb(ended, missed) * 0.01**missed * 0.99 ** (ended - missed)
            for missed in range(ended + 1)
            if verdict(ended, missed).holds is False
        )
        assert wrong <= 0.01


def test_late_replies_are_shown_with_figures_and_the_slowest_stage() -> None:
    found = verdict(200, 100, rate=0.05, slowest="stage rank takes the most, 90 ms alone")
    assert found == SloVerdict(
        False,
        SloReason.LATE,
        "50 % of replies took more than 100 ms in the last 5 minutes, 5 % may; "
        "stage rank takes the most, 90 ms alone",
    )


def test_times_of_stages_count_after_enough_replies() -> None:
    assert verdict(19, problem=PROBLEM).reason is SloReason.FEW_REQUESTS
    assert verdict(20, problem=PROBLEM) == SloVerdict(False, SloReason.STAGES_TOO_SLOW, PROBLEM)


def test_times_of_stages_that_most_replies_contradict_do_not_count() -> None:
    """After a cold start a stage seemed to take 42 s, and no reply was later than 10 s."""
    for missed, reason in (
        (0, SloReason.IN_TIME),
        (14, SloReason.LATE),
        (15, SloReason.STAGES_TOO_SLOW),
    ):
        seen = SeenRequests(ended=30, missed=missed, latency=(30,))
        assert slo_verdict(SloTargets(10.0), 0.05, seen, PROBLEM).reason is reason


def test_a_verdict_takes_no_time_with_many_replies_and_a_tiny_rate() -> None:
    assert verdict(1 << 40, 1 << 20, rate=1e-4).holds is True
    assert verdict(9_999, 9_999, rate=1e-4).holds is False


@pytest.mark.parametrize(
    ("first", "token", "holds", "message"),
    [
        ((100, 0), (100, 0), True, ""),
        ((100, 5), (100, 0), False, "5 % of streamed answers began after 1500 ms"),
        ((100, 0), (90, 9), False, "10 % of streamed answers took more than 50 ms a token"),
        ((100, 5), (90, 9), False, "5 % of streamed answers began after 1500 ms and 10 % of"),
        ((100, 0), (3, 0), None, "fewer than 20 replies"),
    ],
)
def test_streams_that_miss_a_target_of_tokens_are_judged_as_late_replies_are(
    first: tuple[int, int], token: tuple[int, int], holds: bool | None, message: str
) -> None:
    seen = SeenRequests(
        ended=100,
        missed=50,
        streamed=first[0],
        missed_ttft=first[1],
        token_timed=token[0],
        missed_tpot=token[1],
    )
    found = slo_verdict(SloTargets(ttft_s=1.5, tpot_s=0.05), 0.01, seen)
    assert found.holds is holds
    assert found.message.startswith(message)
