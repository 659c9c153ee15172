"""Whether a service meets its SLO: the condition ``MeetsSlo``.

By its stages' measured times, where even a request alone takes too long and most replies do not
contradict that; else by the share of late replies, and of streamed answers whose first event or
whose further tokens were late. With few replies that share says little, so a
verdict then needs either none late, or so many that chance does not explain them.
"""

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from flowmesh_core.serving.plan.request_meter import WINDOW_S, SeenRequests

ENOUGH = 20
"""Replies before a service meets its SLO, of which then none is late, and before the measured times
of stages count."""
_MANY_LATE = 5
"""Late replies where less than one is expected: chance has so many in 0.4 % of cases."""
_CHANCE = 0.01
"""How unlikely it must be that a service which keeps its miss rate has so many late replies."""


class SloReason(StrEnum):
    """Reasons of the condition."""

    IN_TIME = "RepliesInTime"
    LATE = "RepliesLate"
    STAGES_TOO_SLOW = "StagesTooSlow"
    FEW_REQUESTS = "FewRequests"
    NOT_MEASURED = "NotMeasured"


class SloVerdict(msgspec.Struct, frozen=True):
    """The condition; ``holds`` is None where it is not known."""

    holds: bool | None
    reason: SloReason
    message: str = ""


class SloTargets(msgspec.Struct, frozen=True):
    """The targets of a service; 0 for none.

    Attributes:
        latency_s: when a reply is late.
        ttft_s: when the first event of a streamed answer is; ``tpot_s`` a further token of it.
    """

    latency_s: float = 0.0
    ttft_s: float = 0.0
    tpot_s: float = 0.0

    def __bool__(self) -> bool:
        """Returns whether there is any."""
        return bool(self.latency_s or self.ttft_s or self.tpot_s)


class _Counted(NamedTuple):
    """What one target counts, and how a late one is called."""

    missed: int
    ended: int
    late: str


def slo_verdict(
    targets: SloTargets, miss_rate: float, seen: SeenRequests, problem: str = "", slowest: str = ""
) -> SloVerdict:
    """Returns whether a service meets its SLO.

    Args:
        targets: at least one.
        miss_rate: the share of replies that may be late.
        seen: the requests of the last minutes.
        problem: why even a request alone is late, by the measured times of stages; else empty.
        slowest: which stage takes the most, and how long; empty where it is not known.
    """
    if problem and seen.ended >= ENOUGH and not seen.are_in_time:
        return SloVerdict(False, SloReason.STAGES_TOO_SLOW, problem)
    counted = tuple(_counted(targets, seen))
    late = [one for one in counted if _is_late(one, miss_rate)]
    if late:
        shares = " and ".join(f"{_percent(one.missed / one.ended)} of {one.late}" for one in late)
        text = f"{shares} in the last {WINDOW_S / 60:.0f} minutes, {_percent(miss_rate)} may"
        return SloVerdict(False, SloReason.LATE, f"{text}; {slowest}" if slowest else text)
    for one in counted:
        if one.ended < ENOUGH or (one.missed and one.ended * miss_rate < one.missed):
            text = f"{_count(one.ended)} in the last {WINDOW_S / 60:.0f} minutes"
            return SloVerdict(None, SloReason.FEW_REQUESTS, f"{text} are too few to tell")
    return SloVerdict(True, SloReason.IN_TIME)


def _counted(targets: SloTargets, seen: SeenRequests) -> Iterator[_Counted]:
    if targets.latency_s:
        text = f"replies took more than {_ms(targets.latency_s)}"
        yield _Counted(seen.missed, seen.ended, text)
    if targets.ttft_s:
        text = f"streamed answers began after {_ms(targets.ttft_s)}"
        yield _Counted(seen.missed_ttft, seen.streamed, text)
    if targets.tpot_s:
        text = f"streamed answers took more than {_ms(targets.tpot_s)} a token"
        yield _Counted(seen.missed_tpot, seen.token_timed, text)


def _is_late(seen: _Counted, miss_rate: float) -> bool:
    """Returns whether more are late than may be."""
    if seen.missed <= miss_rate * seen.ended:
        return False
    if seen.ended * miss_rate >= 1 or seen.missed >= _MANY_LATE:  # enough for the share itself
        return True
    within = sum(
        math.comb(seen.ended, n) * miss_rate**n * (1 - miss_rate) ** (seen.ended - n)
        for n in range(seen.missed)
    )
    return 1 - within < _CHANCE


def _count(replies: int) -> str:
    """Returns a number of replies that does not change with each of them."""
    return f"fewer than {ENOUGH} replies" if replies < ENOUGH else f"{replies} replies"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
