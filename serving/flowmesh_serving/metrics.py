"""The router's metrics. Labels are closed: services beyond the first 200 count as ``other``."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SERVICES_MAX = 200
_OTHER = "other"
_TIERS = frozenset({"reference", "inline", "shared", "peer", "relay"})
_REASONS = frozenset({"duplicate", "stale"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RouterMetrics:
    """The counters of one router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._services: dict[str, ServiceMetrics] = {}
        self.requests = Counter(
            "flowmesh_service_requests_total",
            "Requests to services that have ended, by outcome.",
            ["service", "outcome"],
            registry=self.registry,
        )
        self.latency = Histogram(
            "flowmesh_service_latency_seconds",
            "Time from a request to the end of its answer.",
            ["service"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.ttft = Histogram(
            "flowmesh_service_ttft_seconds",
            "Time from a streamed request to its first event.",
            ["service"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "flowmesh_service_in_flight",
            "Requests to services that have not ended.",
            ["service"],
            registry=self.registry,
        )
        self.refused = Counter(
            "flowmesh_service_refused_total",
            "Requests to services that were refused, by OpenAI's code of the error.",
            ["why"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "flowmesh_service_tokens_total",
            "Tokens of prompts and of answers.",
            ["service", "direction"],
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
            found = self._services[label] = self._services.get(label) or ServiceMetrics(self, label)
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


class ServiceMetrics:
    """The counters of one service. Looking each up by its labels would take longer than to count.

    Attributes:
        latency: time from a request to the end of its answer.
        ttft: time from a streamed request to its first event.
        tokens_in: of prompts.
        tokens_out: of answers.
    """

    def __init__(self, metrics: RouterMetrics, label: str) -> None:
        self.latency = metrics.latency.labels(label)
        self.ttft = metrics.ttft.labels(label)
        self.tokens_in = metrics.tokens.labels(label, "in")
        self.tokens_out = metrics.tokens.labels(label, "out")
        self._in_flight = metrics.in_flight.labels(label)
        self._requests = metrics.requests
        self._label = label
        self._by_outcome: dict[str, Counter] = {}

    @contextlib.contextmanager
    def track_in_flight(self) -> Iterator[None]:
        """Counts a request as in flight during the block."""
        self._in_flight.inc()
        try:
            yield
        finally:
            self._in_flight.dec()

    def count(self, outcome: str) -> None:
        """Counts a request that has ended."""
        counter = self._by_outcome.get(outcome)
        if counter is None:
            counter = self._by_outcome[outcome] = self._requests.labels(self._label, outcome)
        counter.inc()
