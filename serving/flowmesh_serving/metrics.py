"""The router's metrics. Labels are closed: services beyond the first 200 count as ``other``.

What each request counts is counted in plain numbers, which one thread writes; the collector of them
makes Prometheus' samples when they are read. Each counter of ``prometheus_client`` takes a lock.
"""

import contextlib
import itertools
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_SERVICES_MAX = 200
_OTHER = "other"
_TIERS = frozenset({"reference", "inline", "shared", "peer", "relay"})
_REASONS = frozenset({"duplicate", "stale"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BOUNDS = (*map(floatToGoString, _SECONDS), "+Inf")


class RouterMetrics:
    """The counters of one router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._services: dict[str, ServiceMetrics] = {}
        self.registry.register(_ServiceCollector(self._services))
        self.refused = Counter(
            "flowmesh_service_refused_total",
            "Requests to services that were refused, by OpenAI's code of the error.",
            ["why"],
            registry=self.registry,
        )
        self.replicas = Gauge(
            "flowmesh_service_replicas",
            "Replicas that take calls from this router.",
            ["service"],
            registry=self.registry,
        )

        self.passed_bytes = Counter(
            "flowmesh_service_hop_bytes_total",
            "Bytes of values between stages of services, by tier; of references their number.",
            ["tier"],
            registry=self.registry,
        )
        self.dropped_values = Counter(
            "flowmesh_service_dropped_values_total",
            "Values of stages that came twice, or for a route that was replaced.",
            ["why"],
            registry=self.registry,
        )

    def of_service(self, service: str) -> "ServiceMetrics":
        """Returns the counters of a service; those of ``other`` beyond the first 200."""
        found = self._services.get(service)
        if found is None:
            label = service if len(self._services) < _SERVICES_MAX else _OTHER
            found = self._services[label] = self._services.get(label) or ServiceMetrics()
        return found

    def count_passed(self, passed_bytes: Mapping[str, int]) -> None:
        """Counts bytes of values between stages, by tier; tiers that are unknown are left out."""
        for tier in _TIERS & passed_bytes.keys():
            self.passed_bytes.labels(tier).inc(max(0, passed_bytes[tier]))

    def count_dropped(self, dropped: Mapping[str, int]) -> None:
        """Counts values of stages that were dropped, by reason."""
        for why in _REASONS & dropped.keys():
            self.dropped_values.labels(why).inc(max(0, dropped[why]))

    def text(self, replicas: Mapping[str, int]) -> bytes:
        """Returns all metrics in Prometheus' text format.

        Args:
            replicas: by service, how many take calls from this router.
        """
        self.replicas.clear()
        for service, count in itertools.islice(replicas.items(), _SERVICES_MAX):
            self.replicas.labels(service).set(count)
        return generate_latest(self.registry)


class SecondsHistogram:
    """Times by bucket.

    Attributes:
        sum_s: of all times.
    """

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts a time."""
        self._counts[bisect_left(_SECONDS, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Returns how many times were at most each bound, as Prometheus has them."""
        return list(zip(_BOUNDS, itertools.accumulate(self._counts), strict=True))


class ServiceMetrics:
    """The counters of one service.

    Attributes:
        outcomes: requests that have ended, by outcome.
        in_flight: requests that have not ended.
        latency: time from a request to the end of its answer.
        ttft: time from a streamed request to its first event.
        tokens_in: of prompts.
        tokens_out: of answers.
    """

    def __init__(self) -> None:
        self.outcomes: Counts[str] = Counts()
        self.in_flight = self.tokens_in = self.tokens_out = 0
        self.latency = SecondsHistogram()
        self.ttft = SecondsHistogram()

    @contextlib.contextmanager
    def track_in_flight(self) -> Iterator[None]:
        """Counts a request as in flight during the block."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def count(self, outcome: str) -> None:
        """Counts a request that has ended."""
        self.outcomes[outcome] += 1


class _ServiceCollector(Collector):
    """Makes samples of the counters of services."""

    def __init__(self, services: Mapping[str, ServiceMetrics]) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        requests = CounterMetricFamily(
            "flowmesh_service_requests_total",
            "Requests to services that have ended, by outcome.",
            labels=["service", "outcome"],
        )
        latency = HistogramMetricFamily(
            "flowmesh_service_latency_seconds",
            "Time from a request to the end of its answer.",
            labels=["service"],
        )
        ttft = HistogramMetricFamily(
            "flowmesh_service_ttft_seconds",
            "Time from a streamed request to its first event.",
            labels=["service"],
        )
        in_flight = GaugeMetricFamily(
            "flowmesh_service_in_flight",
            "Requests to services that have not ended.",
            labels=["service"],
        )
        tokens = CounterMetricFamily(
            "flowmesh_service_tokens_total",
            "Tokens of prompts and of answers.",
            labels=["service", "direction"],
        )
        for name, metrics in self._services.items():
            for outcome, count in metrics.outcomes.items():
                requests.add_metric([name, outcome], count)
            latency.add_metric([name], metrics.latency.buckets(), metrics.latency.sum_s)
            ttft.add_metric([name], metrics.ttft.buckets(), metrics.ttft.sum_s)
            in_flight.add_metric([name], metrics.in_flight)
            tokens.add_metric([name, "in"], metrics.tokens_in)
            tokens.add_metric([name, "out"], metrics.tokens_out)
        return iter((requests, latency, ttft, in_flight, tokens))
