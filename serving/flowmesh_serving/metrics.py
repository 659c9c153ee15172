"""The router's metrics. Labels are closed: services beyond the first 200 count as ``other``."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_serving.request_counts import RequestCounts

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
        self._labels: set[str] = set()
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

        self.slo_missed = Counter(
            "flowmesh_service_slo_missed_total",
            "Requests to services that took longer than the latency target.",
            ["service"],
            registry=self.registry,
        )
        self.slo_miss_rate = Gauge(
            "flowmesh_service_slo_miss_rate",
            "The share of a service's requests that may miss its latency target.",
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
        """Returns the counters of a service, with the label ``other`` beyond the first 200."""
        found = self._services.get(service)
        if found is None:
            fits = service in self._labels or len(self._labels) < _SERVICES_MAX
            label = service if fits else _OTHER
            self._labels.add(label)
            found = self._services[service] = ServiceMetrics(self, label)
        return found

    def use(self, services: Mapping[str, ServiceEntry]) -> None:
        """Counts for these services, and forgets the counts of others."""
        for gone in self._services.keys() - services.keys():
            del self._services[gone]
        self.slo_miss_rate.clear()
        for name, entry in services.items():
            found = self.of_service(name)
            found.counts.target_s = entry.slo_s
            if entry.slo_s and found.label != _OTHER:
                self.slo_miss_rate.labels(found.label).set(entry.miss_rate)

    def counts(self) -> Mapping[str, RequestCounts]:
        """Returns the requests of each service since this router began."""
        return {name: found.counts for name, found in self._services.items()}

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
        counts: what this router reports of the service.
        label: the service, or ``other``.
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
        self._slo_missed = metrics.slo_missed.labels(label)
        self.label = label
        self.counts = RequestCounts()
        self._by_outcome: dict[str, Counter] = {}

    @contextlib.contextmanager
    def track_in_flight(self) -> Iterator[None]:
        """Counts a request as in flight during the block."""
        self._in_flight.inc()
        self.counts.in_flight += 1
        try:
            yield
        finally:
            self.counts.in_flight -= 1
            self._in_flight.dec()

    def count(self, outcome: str, seconds: float) -> None:
        """Counts a request that has ended.

        Args:
            outcome: how.
            seconds: since it came.
        """
        counter = self._by_outcome.get(outcome)
        if counter is None:
            counter = self._by_outcome[outcome] = self._requests.labels(self.label, outcome)
        counter.inc()
        self.latency.observe(seconds)
        if self.counts.end(outcome, seconds):
            self._slo_missed.inc()
