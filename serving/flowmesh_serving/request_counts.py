"""The requests of one service since its router began, as the router reports them."""

from flowmesh_core.protocol.router_reports import ReplicaProfile, ServiceReport
from flowmesh_core.serving.latency_sketch import BUCKETS, bucket_of

_ANSWERED, _FAILED, _REFUSED, _CANCELLED = "ok", "failed", "refused", "cancelled"
_UNASKED = frozenset({"invalid", "replayed"})
"""Outcomes of requests that ask nothing of replicas."""


class RequestCounts:
    """Counts; :meth:`end` is on the path of each request.

    Attributes:
        target_s: when a reply is late; 0 for never.
        ttft_s: when the first event of a stream is late, ``tpot_s`` a further token; 0 for never.
        in_flight: requests that were taken and have not ended.
    """

    __slots__ = (
        "_ended",
        "_gone",
        "_invalid",
        "_latency",
        "_missed",
        "_missed_tpot",
        "_missed_ttft",
        "_refused",
        "_streamed",
        "_token_timed",
        "in_flight",
        "target_s",
        "tpot_s",
        "ttft_s",
    )

    def __init__(self) -> None:
        self.target_s = self.ttft_s = self.tpot_s = 0.0
        self.in_flight = 0
        self._ended = self._missed = self._refused = self._gone = self._invalid = 0
        self._streamed = self._missed_ttft = self._token_timed = self._missed_tpot = 0
        self._latency = [0] * BUCKETS

    def begin_stream(self, seconds: float) -> bool:
        """Counts the first event of a stream; returns whether it has missed its target."""
        missed = 0 < self.ttft_s < seconds
        self._streamed += 1
        self._missed_ttft += missed
        return missed

    def end_stream(self, token_s: float) -> bool:
        """Counts the time per token of a stream; returns whether it has missed its target."""
        missed = 0 < self.tpot_s < token_s
        self._token_timed += 1
        self._missed_tpot += missed
        return missed

    def end(self, outcome: str, seconds: float) -> bool:
        """Counts a request that has ended; returns whether it has missed the latency target.

        One that its client gave up in time, or read too slowly, says nothing about the target.
        """
        if outcome == _REFUSED:
            self._refused += 1
            return False
        if outcome in _UNASKED:
            self._invalid += 1
            return False
        missed = 0 < self.target_s < seconds
        if outcome == _ANSWERED:
            self._latency[bucket_of(seconds)] += 1
        elif outcome != _FAILED and not (missed and outcome == _CANCELLED):
            self._gone += 1
            return False
        self._ended += 1
        self._missed += missed
        return missed

    def report(self, service: str, replicas: tuple[ReplicaProfile, ...]) -> ServiceReport:
        """Returns the totals.

        Args:
            service: whose they are.
            replicas: the profiles of its replicas.
        """
        last = max((n for n, count in enumerate(self._latency) if count), default=-1)
        return ServiceReport(
            service,
            came=self.in_flight + self._ended + self._gone + self._refused + self._invalid,
            ended=self._ended,
            missed=self._missed,
            refused=self._refused,
            latency=tuple(self._latency[: last + 1]),
            replicas=replicas,
            invalid=self._invalid,
            streamed=self._streamed,
            missed_ttft=self._missed_ttft,
            token_timed=self._token_timed,
            missed_tpot=self._missed_tpot,
            in_flight=self.in_flight,
        )
