"""Metrics of pools: their wanted and current sizes, and how long a worker takes to start."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from flowmesh_control.metrics.families import gauges
from flowmesh_operator.pools.objects import WANTED_METRIC
from flowmesh_operator.pools.status import PoolNumbers


class PoolCollector(Collector):
    """Yields the pools' metrics; pools without workers too, so that KEDA can start the first."""

    def __init__(self, figures: Callable[[], Mapping[str, PoolNumbers]]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: values are computed at each scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields the current values."""
        found = sorted(self._figures().items())
        yield gauges(
            WANTED_METRIC,
            "Workers that a pool should have for its backlog, plus those that must not be removed"
            " yet; a HorizontalPodAutoscaler and KEDA scale the pool by it.",
            ["pool"],
            [([name], figures.external_target) for name, figures in found],
        )
        yield gauges(
            "flowmesh_pool_replicas",
            "Replicas of a pool's Deployment.",
            ["pool"],
            [([name], figures.replicas) for name, figures in found],
        )
        yield gauges(
            "flowmesh_pool_start_seconds",
            "Predicted seconds from requesting a worker until it connects.",
            ["pool"],
            [([name], figures.start_s) for name, figures in found],
        )
