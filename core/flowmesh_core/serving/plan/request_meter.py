"""The requests of services over the last minutes, as routers report them.

The control plane passes every report that ``report_check`` has passed. Reports have totals, so the
meter keeps the last of each router and counts what was added since.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.protocol.router_reports import RouterReport, ServiceReport
from flowmesh_core.serving.latency_sketch import BUCKETS, quantile_s

RATE_WINDOW_S = 60.0
"""The time over which the rate of requests is measured."""
WINDOW_S = 300.0
"""The time over which late replies are counted."""
SLICE_S = 5.0
"""Reports within this time are counted together."""
ROUTERS_MAX = 64
_STREAM_COUNTS = ("streamed", "missed_ttft", "token_timed", "missed_tpot")
_COUNTS = ("came", "ended", "missed", "refused", "invalid", *_STREAM_COUNTS)
"""Those of a report, without the latencies."""
SILENT_S = 60.0
"""A router that has not reported for so long has ended."""


class SeenRequests(msgspec.Struct, frozen=True):
    """The requests of a service in the last minutes, at all routers.

    Attributes:
        rate_per_s: that came, over the last minute; ``taken_per_s`` without those refused.
        came: over all the time that is measured, as are the others; without ``invalid`` ones.
        ended: see ``ServiceReport``.
        latency: of those that were answered, their number by bucket.
        streamed: see ``ServiceReport``, as the counts after it.
        in_flight: at all routers, by the last report of each.
    """

    rate_per_s: float = 0.0
    came: int = 0
    ended: int = 0
    missed: int = 0
    refused: int = 0
    latency: tuple[int, ...] = ()
    taken_per_s: float = 0.0
    streamed: int = 0
    missed_ttft: int = 0
    token_timed: int = 0
    missed_tpot: int = 0
    in_flight: int = 0

    @property
    def p50_s(self) -> float:
        """The median latency."""
        return quantile_s(self.latency, 0.5)

    @property
    def p95_s(self) -> float:
        """The 95th percentile of latency."""
        return quantile_s(self.latency, 0.95)

    @property
    def p99_s(self) -> float:
        """The 99th percentile of latency."""
        return quantile_s(self.latency, 0.99)

    @property
    def are_in_time(self) -> bool:
        """Whether most requests that were answered met the latency target."""
        return 2 * self.missed < sum(self.latency)


NOTHING_SEEN = SeenRequests()


@dataclass(slots=True)
class _Slice:
    began_s: float
    came: int = 0
    ended: int = 0
    missed: int = 0
    refused: int = 0
    invalid: int = 0
    streamed: int = 0
    missed_ttft: int = 0
    token_timed: int = 0
    missed_tpot: int = 0
    latency: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, now: ServiceReport, before: ServiceReport) -> None:
        for name in _COUNTS:
            added = getattr(now, name) - getattr(before, name)
            setattr(self, name, getattr(self, name) + added)
        for bucket, count in enumerate(now.latency):
            known = before.latency[bucket] if bucket < len(before.latency) else 0
            self.latency[bucket] += count - known


@dataclass(slots=True)
class _Router:
    seen_s: float
    totals: dict[str, ServiceReport] = field(default_factory=dict)


@dataclass(slots=True)
class RequestMeter:
    """The requests of all services."""

    _routers: dict[str, _Router] = field(default_factory=dict)
    _slices: dict[str, deque[_Slice]] = field(default_factory=dict)

    def observe(self, report: RouterReport, now_s: float) -> bool:
        """Counts what a report adds; returns False where there are too many routers.

        The first report of a router counts only where the router is young: an older one has counted
        for another leader.
        """
        for name in [n for n, r in self._routers.items() if r.seen_s < now_s - SILENT_S]:
            del self._routers[name]
        router = self._routers.get(report.router)
        is_new = router is None
        if router is None:
            if len(self._routers) >= ROUTERS_MAX:
                return False
            router = self._routers[report.router] = _Router(now_s)
        router.seen_s = now_s
        counts_whole = not is_new or report.age_s <= RATE_WINDOW_S
        for total in report.services:
            before = router.totals.get(total.service, ServiceReport(total.service))
            router.totals[total.service] = msgspec.structs.replace(total, replicas=())
            if counts_whole and _only_grew(total, before):
                self._current(total.service, now_s).add(total, before)
        return True

    def keep(self, services: Collection[str]) -> None:
        """Forgets all services but these."""
        for service in self._slices.keys() - services:
            del self._slices[service]
        for router in self._routers.values():
            for service in router.totals.keys() - services:
                del router.totals[service]

    def seen(self, service: str, now_s: float) -> SeenRequests:
        """Returns the requests of a service."""
        slices = [s for s in self._slices.get(service, ()) if s.began_s > now_s - WINDOW_S]
        in_flight = self._in_flight(service, now_s)
        if not slices:
            return SeenRequests(in_flight=in_flight)
        minute = [s for s in slices if s.began_s > now_s - RATE_WINDOW_S]
        known_s = min(RATE_WINDOW_S, now_s - slices[0].began_s + SLICE_S)
        came = _came(minute)
        return SeenRequests(
            came / known_s,
            _came(slices),
            sum(s.ended for s in slices),
            sum(s.missed for s in slices),
            sum(s.refused for s in slices),
            tuple(map(sum, zip(*(s.latency for s in slices), strict=True))),
            max(0, came - sum(s.refused for s in minute)) / known_s,
            in_flight=in_flight,
            **{name: sum(getattr(s, name) for s in slices) for name in _STREAM_COUNTS},
        )

    def replies(self, service: str) -> int:
        """Returns how many requests of a service have ended since its routers began."""
        totals = (r.totals[service] for r in self._routers.values() if service in r.totals)
        return sum(total.ended for total in totals)

    def _in_flight(self, service: str, now_s: float) -> int:
        heard = (r for r in self._routers.values() if r.seen_s >= now_s - SILENT_S)
        return sum(r.totals[service].in_flight for r in heard if service in r.totals)

    def _current(self, service: str, now_s: float) -> _Slice:
        slices = self._slices.setdefault(service, deque())
        while slices and slices[0].began_s <= now_s - WINDOW_S:
            slices.popleft()
        if not slices or slices[-1].began_s <= now_s - SLICE_S:
            slices.append(_Slice(now_s))
        return slices[-1]


def _came(slices: Iterable[_Slice]) -> int:
    """Returns the valid requests; of one that is found invalid in a later slice it is not less."""
    return max(0, sum(s.came - s.invalid for s in slices))


def _only_grew(now: ServiceReport, before: ServiceReport) -> bool:
    """Returns whether no total is smaller than before; else it is a new beginning."""
    pairs = zip(now.latency, before.latency, strict=False)
    return (
        all(getattr(now, name) >= getattr(before, name) for name in _COUNTS)
        and len(now.latency) >= len(before.latency)
        and all(a >= b for a, b in pairs)
    )
