"""Metrics of pools besides those of their workers: how many workers there should be."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from flowmesh_control.metrics.families import gauges
from flowmesh_operator.pools.objects import WANTED_METRIC
from flowmesh_operator.pools.status import PoolNumbers


class PoolCollector(Collector):
    """Shown by the leader; a pool without any worker is there too, so that KEDA can start one."""

    def __init__(self, figures: Callable[[], Mapping[str, PoolNumbers]]) -> None:
        """Takes what says the pools' figures, by name."""
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        """Nothing at registration: the figures exist only when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Reads every figure."""
        found = sorted(self._figures().items())
        yield gauges(
            WANTED_METRIC,
            "Workers that a pool should have by its backlog, and above them those that must not be "
            "taken yet.",
            ["pool"],
            [([name], figures.told) for name, figures in found],
        )
        yield gauges(
            "flowmesh_pool_workers_asked",
            "Workers that a pool's Deployment asks for.",
            ["pool"],
            [([name], figures.replicas) for name, figures in found],
        )
        yield gauges(
            "flowmesh_pool_start_seconds",
            "Predicted seconds from asking for a worker until it connects.",
            ["pool"],
            [([name], figures.start_s) for name, figures in found],
        )
