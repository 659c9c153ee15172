"""How many replicas a component should have: as many as keep up with its measured demand.

Before it is measured: as many as the service's expected requests need.

More at once when the demand exceeds what the present ones are predicted to serve; one fewer after a
time in which the next smaller fleet would have been well below its knee. Neither the use of
processors nor the length of a queue decides.
"""

import math

import msgspec

from flowmesh_core.serving.plan.capacity import UTILISATION

FEWER_BELOW = 0.6
"""Of the knee of the next smaller fleet."""
FEWER_AFTER_S = 300.0


class ReplicaCapacity(msgspec.Struct, frozen=True):
    """What one replica is predicted to serve, per second.

    Attributes:
        peak: with full batches; ``knee`` with the smallest batches near that.
    """

    peak: float
    knee: float


class ReplicaCount(msgspec.Struct, frozen=True):
    """The number of replicas of a component, and what the next decision needs.

    Attributes:
        below_since_s: since when fewer would do; None where they would not.
        text: why it is this number.
    """

    wanted: int
    below_since_s: float | None = None
    text: str = ""


def count_replicas(
    least: int,
    most: int,
    rate_per_s: float | None,
    capacity: ReplicaCapacity | None,
    before: ReplicaCount,
    now_s: float,
) -> ReplicaCount:
    """Decides how many replicas a component should have.

    Args:
        least: the least, at least 1.
        most: the most.
        rate_per_s: the demand; None where it is not known yet.
        capacity: of one replica, in the same unit; None where it is not known yet.
        before: the last decision.
        now_s: the time.
    """
    wanted = min(max(before.wanted, least), most)
    if least == most:
        return ReplicaCount(wanted, None, "the service asks for it")
    if rate_per_s is None or capacity is None:
        return ReplicaCount(wanted, None, "its demand is not measured yet")
    text = f"{rate_per_s:.3g}/s asked, and one replica serves {UTILISATION * capacity.peak:.3g}"
    needed = math.ceil(rate_per_s / (UTILISATION * capacity.peak) - 1e-9)
    if needed > wanted:
        at_most = f", at most {most}" if needed > most else ""
        return ReplicaCount(min(needed, most), None, text + at_most)
    if wanted == least or rate_per_s >= FEWER_BELOW * capacity.knee * (wanted - 1):
        return ReplicaCount(wanted, None, text)
    since_s = now_s if before.below_since_s is None else before.below_since_s
    if now_s - since_s < FEWER_AFTER_S:
        return ReplicaCount(wanted, since_s, f"{text}; one fewer would do")
    return ReplicaCount(wanted - 1, now_s, text)


def count_expected(
    least: int, most: int, calls_at_once: float, calls_max: int, before: ReplicaCount
) -> ReplicaCount:
    """Decides how many replicas a component has before anything is measured: enough for its calls.

    Args:
        least: the least, at least 1.
        most: the most.
        calls_at_once: calls that are under way where each takes its part of the latency target.
        calls_max: calls that one replica runs at once, at least 1.
        before: the last decision; there are not fewer before something is measured.
    """
    needed = math.ceil(calls_at_once / calls_max - 1e-9)
    wanted = min(max(before.wanted, least, needed), most)
    return ReplicaCount(
        wanted,
        None,
        f"{calls_at_once:.3g} calls at once are expected, and one replica runs {calls_max}",
    )
