"""A worker's bill, second by second, and its split among the worker's attempts.

The machine has one :class:`WorkerMeter` per worker. Each advance returns the cost since the last
one in exact integers, so that Σ shares = price times lifetime, however the advances are spaced.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from flowmesh_core.units import split_exactly

NANOSECONDS_PER_HOUR = 3600 * 10**9

K = TypeVar("K", bound=Hashable)


class WorkerMeter:
    """What a worker has cost since it started.

    Attributes:
        billed_nanousd: what has been returned so far.
    """

    def __init__(self, price_nanousd_per_hour: int, started_s: float) -> None:
        self._price = price_nanousd_per_hour
        self._started_ns = round(started_s * 1e9)
        self.billed_nanousd = 0

    def advance(self, now_s: float) -> int:
        """Returns what has become due since the last advance; 0 if time went back."""
        elapsed_ns = max(0, round(now_s * 1e9) - self._started_ns)
        due = self._price * elapsed_ns // NANOSECONDS_PER_HOUR
        delta = max(0, due - self.billed_nanousd)
        self.billed_nanousd += delta
        return delta


class Activity(msgspec.Struct, frozen=True, gc=False):
    """What an attempt, or a replica of a service, did in a segment of time.

    Attributes:
        instance: the engine instance that it is in.
        running: it executed; otherwise it waited for the instance to load.
        units: work done in the segment (tokens, samples ...).
    """

    instance: str
    running: bool
    units: int


@dataclass(frozen=True, slots=True)
class SegmentShares(Generic[K]):
    """How a segment's cost splits.

    Attributes:
        execution: by attempt, ``loading`` by attempt.
        fabric: the rest, where no attempt was active.
    """

    execution: Mapping[K, int]
    loading: Mapping[K, int]
    fabric: int


def split_segment(amount: int, active: Mapping[K, Activity]) -> SegmentShares[K]:
    """Splits a segment's cost: equally among instances, inside one by work among what ran.

    An instance in which nothing ran charges those that waited for it to load, equally.

    Args:
        amount: nano-dollars, at least 0.
        active: every attempt that ran or waited for loading, in a stable order.
    """
    if not active:
        return SegmentShares({}, {}, amount)
    if len(active) == 1:  # as a rule: no share has to be worked out
        ((key, activity),) = active.items()
        return SegmentShares(*(({key: amount}, {}) if activity.running else ({}, {key: amount})), 0)
    instances: dict[str, list[K]] = {}
    for key, activity in active.items():
        instances.setdefault(activity.instance, []).append(key)
    execution: dict[K, int] = {}
    loading: dict[K, int] = {}
    for share, members in zip(
        split_exactly(amount, [1] * len(instances)), instances.values(), strict=True
    ):
        running = [k for k in members if active[k].running]
        target, payers = (execution, running) if running else (loading, members)
        weights = [active[k].units if running else 1 for k in payers]
        target.update(zip(payers, split_exactly(share, weights), strict=True))
    return SegmentShares(execution, loading, 0)
