"""The router's metrics. Labels are closed: services beyond the first 200 count as ``other``."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SERVICES_MAX = 200
_OTHER = "other"
_TIERS = frozenset({"reference", "inline", "relay"})
_REASONS = frozenset({"duplicate", "stale"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class RouterMetrics:
    """The counters of one router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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

    def label(self, service: str) -> str:
        """Returns the label of a service."""
        if service in self._labels or len(self._labels) < _SERVICES_MAX:
            self._labels.add(service)
            return service
        return _OTHER

    def count_passed(self, passed_bytes: Mapping[str, int]) -> None:
        """Counts bytes of values between stages, by tier; tiers that are unknown are left out."""
        for tier in _TIERS & passed_bytes.keys():
            self.passed_bytes.labels(tier).inc(max(0, passed_bytes[tier]))

    def count_dropped(self, dropped: Mapping[str, int]) -> None:
        """Counts values of stages that were dropped, by reason."""
        for why in _REASONS & dropped.keys():
            self.dropped_values.labels(why).inc(max(0, dropped[why]))

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
