"""The operator's own metrics; the leader adds them to its control plane's ``/metrics``."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from flowmesh_control.metrics.families import counters, gauges
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache


class OperatorCollector(Collector):
    """Counts requests to the API server and the watched objects."""

    def __init__(self, api: KubeClient, mirror: InformerCache) -> None:
        self._api = api
        self._mirror = mirror

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: values are computed at each scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields the current values."""
        yield counters(
            "flowmesh_api_requests",
            "Requests to the Kubernetes API server, by verb and resource; each retry counts.",
            ["verb", "resource"],
            sorted(self._api.requests.items()),
        )
        mirror = self._mirror
        yield gauges(
            "flowmesh_objects",
            "Objects that the operator watches, by kind.",
            ["kind"],
            [
                (["workflows"], len(mirror.workflows)),
                (["pools"], len(mirror.pools)),
                (["policies"], len(mirror.policies)),
                (["namespaces"], len(mirror.namespaces)),
            ],
        )
