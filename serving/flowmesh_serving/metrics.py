"""The router's metrics. Labels are closed: services beyond the first 200 count as ``other``.

What each request counts is counted in plain numbers, which one thread writes; the collector of them
makes Prometheus' samples when they are read. Each counter of ``prometheus_client`` takes a lock.
"""

import contextlib
import itertools
from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.protocol.serving import CallTimes
from flowmesh_serving.component_metrics import OTHER, ComponentMetrics
from flowmesh_serving.request_counts import RequestCounts
from flowmesh_serving.time_sums import SecondsHistogram, SecondsSum

_SERVICES_MAX = 200
_TIERS = frozenset({"reference", "inline", "shared", "peer", "relay"})
_REASONS = frozenset({"duplicate", "stale"})
_UNANSWERED = frozenset({"refused", "invalid", "replayed", "cancelled"})
"""Outcomes without an answer of a replica: their times would make latencies look short."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_TOKEN_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1),
    *(0.15, 0.25, 0.5, 1, 2.5),
)


class RouterMetrics:
    """The counters of one router."""

    def __init__(self, routes: Sequence[SecondsSum] = ()) -> None:
        """Has counted nothing.

        Args:
            routes: the times in which replicas are chosen, each for some of the requests.
        """
        self.registry = CollectorRegistry()
        self._services: dict[str, ServiceMetrics] = {}
        self._figures: dict[str, ServiceFigures] = {}
        self._components = ComponentMetrics()
        self.registry.register(_ServiceCollector(self._figures, routes))
        self.registry.register(self._components)
        self.refused = Counter(
            "flowmesh_service_refused_total",
            "Requests to services that were refused, by OpenAI error code.",
            ["why"],
            registry=self.registry,
        )
        self.replicas = Gauge(
            "flowmesh_service_replicas",
            "Replicas of a service that accept calls from this router.",
            ["service"],
            registry=self.registry,
        )
        self.batch_cap = Gauge(
            "flowmesh_service_batch_cap",
            "The largest batch that a replica of a component forms; for an engine, the maximum"
            " number of concurrent calls.",
            ["service", "component"],
            registry=self.registry,
        )
        self.slo_miss_rate = Gauge(
            "flowmesh_service_slo_miss_rate",
            "The share of a service's requests that is allowed to miss a target (slo.missRate).",
            ["service"],
            registry=self.registry,
        )
        self.passed_bytes = Counter(
            "flowmesh_service_hop_bytes_total",
            "Bytes of the values that pass between stages of services, by tier: reference, inline,"
            " shared, peer or relay. For references, their number.",
            ["tier"],
            registry=self.registry,
        )
        self.dropped_values = Counter(
            "flowmesh_service_dropped_values_total",
            "Values of stages that were dropped because they came twice, or for a route that was"
            " replaced.",
            ["why"],
            registry=self.registry,
        )

        self.outdated_lists = Counter(
            "flowmesh_service_outdated_lists_total",
            "Lists of services that the router refused because it had a newer one, as when a"
            " deposed leader still answers.",
            registry=self.registry,
        )

    def of_service(self, service: str) -> "ServiceMetrics":
        """Returns the counters of a service, with the label ``other`` beyond the first 200."""
        found = self._services.get(service)
        if found is None:
            fits = service in self._figures or len(self._figures) < _SERVICES_MAX
            label = service if fits else OTHER
            figures = self._figures.setdefault(label, ServiceFigures())
            found = self._services[service] = ServiceMetrics(figures, label)
        return found

    def use(self, services: Mapping[str, ServiceEntry]) -> None:
        """Counts for these services, and forgets the counts of others."""
        for gone in self._services.keys() - services.keys():
            del self._services[gone]
        self.slo_miss_rate.clear()
        for name, entry in services.items():
            found = self.of_service(name)
            found.counts.target_s = entry.slo_s
            found.counts.ttft_s, found.counts.tpot_s = entry.ttft_s, entry.tpot_s
            if (entry.slo_s or entry.ttft_s or entry.tpot_s) and found.label != OTHER:
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

    def count_times(self, service: str, component: str, times: CallTimes) -> None:
        """Counts what calls of a component have taken."""
        self._components.add(self.of_service(service).label, component, times)

    def text(
        self,
        replicas: Mapping[str, int],
        caps: Mapping[tuple[str, str], int] = MappingProxyType({}),
    ) -> bytes:
        """Returns all metrics in Prometheus' text format.

        Args:
            replicas: by service, how many take calls from this router.
            caps: by service and component, the largest batch.
        """
        self.replicas.clear()
        for service, count in itertools.islice(replicas.items(), _SERVICES_MAX):
            self.replicas.labels(service).set(count)
        self.batch_cap.clear()
        for (service, component), cap in caps.items():
            if self.of_service(service).label != OTHER:
                self.batch_cap.labels(service, component).set(cap)
        return generate_latest(self.registry)


class ServiceMetrics:
    """The counters of one service.

    Attributes:
        figures: what Prometheus gets.
        counts: what this router reports of the service.
        label: the service, or ``other``.
    """

    __slots__ = ("counts", "figures", "label")

    def __init__(self, figures: "ServiceFigures", label: str) -> None:
        self.figures = figures
        self.counts = RequestCounts()
        self.label = label

    @contextlib.contextmanager
    def track_in_flight(self) -> Iterator[None]:
        """Counts a request as in flight during the block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Counts a request as in flight until it leaves."""
        self.figures.in_flight += 1
        self.counts.in_flight += 1

    def leave(self) -> None:
        """Counts a request in flight less."""
        self.figures.in_flight -= 1
        self.counts.in_flight -= 1

    def count(self, outcome: str, seconds: float) -> None:
        """Counts a request that has ended.

        Args:
            outcome: how.
            seconds: since it came.
        """
        figures = self.figures
        figures.outcomes[outcome] += 1
        if outcome not in _UNANSWERED:
            figures.latency.observe(seconds)
        if self.counts.end(outcome, seconds):
            figures.slo_missed += 1

    def begin_stream(self, seconds: float) -> None:
        """Counts the first event of a streamed answer, so long after its request."""
        self.figures.ttft.observe(seconds)
        self.figures.ttft_missed += self.counts.begin_stream(seconds)

    def end_stream(self, token_s: float) -> None:
        """Counts a streamed answer by the time of its tokens after the first event."""
        self.figures.tpot.observe(token_s)
        self.figures.tpot_missed += self.counts.end_stream(token_s)


class ServiceFigures:
    """What Prometheus gets of a service, or of all of the label ``other``.

    Attributes:
        outcomes: requests that have ended, by outcome.
        in_flight: requests that have not ended.
        latency: time from a request to the end of its answer, without ``_UNANSWERED``.
        ttft: time from a streamed request to its first event.
        slo_missed: requests that took longer than the latency target.
        ttft_missed: streamed answers that began after their target; ``tpot_missed`` those whose
            tokens took longer than theirs.
        tokens_in: of prompts.
        tokens_out: of answers.
        tpot: time of streamed answers after their first event, by their tokens after the first.
    """

    __slots__ = (
        "in_flight",
        "latency",
        "outcomes",
        "slo_missed",
        "tokens_in",
        "tokens_out",
        "tpot",
        "tpot_missed",
        "ttft",
        "ttft_missed",
    )

    def __init__(self) -> None:
        self.outcomes: Counts[str] = Counts()
        self.in_flight = self.tokens_in = self.tokens_out = self.slo_missed = 0
        self.ttft_missed = self.tpot_missed = 0
        self.latency = SecondsHistogram(_SECONDS)
        self.ttft = SecondsHistogram(_SECONDS)
        self.tpot = SecondsHistogram(_TOKEN_SECONDS)


class _ServiceCollector(Collector):
    """Makes samples of the counters of services."""

    def __init__(
        self, services: Mapping[str, ServiceFigures], routes: Sequence[SecondsSum]
    ) -> None:
        self._services = services
        self._routes = routes

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        requests = CounterMetricFamily(
            "flowmesh_service_requests_total",
            "Requests to services that have ended, by outcome.",
            labels=["service", "outcome"],
        )
        latency = HistogramMetricFamily(
            "flowmesh_service_latency_seconds",
            "Time from a request to the end of its answer, without requests that were refused,"
            " invalid, replayed or cancelled.",
            labels=["service"],
        )
        ttft = HistogramMetricFamily(
            "flowmesh_service_ttft_seconds",
            "Time from a streamed request to its first event.",
            labels=["service"],
        )
        tpot = HistogramMetricFamily(
            "flowmesh_service_tpot_seconds",
            "Time per token of streamed answers, after the first event.",
            labels=["service"],
        )
        in_flight = GaugeMetricFamily(
            "flowmesh_service_in_flight",
            "Requests to a service that have not ended.",
            labels=["service"],
        )
        tokens = CounterMetricFamily(
            "flowmesh_service_tokens_total",
            "Tokens of prompts (in) and of answers (out).",
            labels=["service", "direction"],
        )
        slo_missed = CounterMetricFamily(
            "flowmesh_service_slo_missed_total",
            "Requests that took longer than their service's latency target.",
            labels=["service"],
        )
        ttft_missed = CounterMetricFamily(
            "flowmesh_service_ttft_missed_total",
            "Streamed answers whose first event came later than the target (slo.ttft).",
            labels=["service"],
        )
        tpot_missed = CounterMetricFamily(
            "flowmesh_service_tpot_missed_total",
            "Streamed answers whose time per token was above the target (slo.tpot).",
            labels=["service"],
        )
        for name, figures in self._services.items():
            for outcome, count in figures.outcomes.items():
                requests.add_metric([name, outcome], count)
            latency.add_metric([name], figures.latency.buckets(), figures.latency.sum_s)
            ttft.add_metric([name], figures.ttft.buckets(), figures.ttft.sum_s)
            tpot.add_metric([name], figures.tpot.buckets(), figures.tpot.sum_s)
            in_flight.add_metric([name], figures.in_flight)
            tokens.add_metric([name, "in"], figures.tokens_in)
            tokens.add_metric([name, "out"], figures.tokens_out)
            slo_missed.add_metric([name], figures.slo_missed)
            ttft_missed.add_metric([name], figures.ttft_missed)
            tpot_missed.add_metric([name], figures.tpot_missed)
        counters = (requests, tokens, slo_missed, ttft_missed, tpot_missed)
        return iter((*counters, latency, ttft, tpot, in_flight, self._route_times()))

    def _route_times(self) -> Metric:
        return SummaryMetricFamily(
            "flowmesh_service_route_seconds",
            "Time that the router took to choose replicas for a request. Each choice counts, so a"
            " request that is tried again counts more than once.",
            count_value=sum(one.count for one in self._routes),
            sum_value=sum(one.sum_s for one in self._routes),
        )
