"""The metrics of components: what hubs report of their calls, by service and component.

Called by ``metrics``; the labels of services are bounded there, those of components here.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from flowmesh_core.protocol.serving import CallTimes

OTHER = "other"
COMPONENTS_MAX = 1600
"""Components with labels of their own; eight for each of 200 services."""
_LABELS = ("service", "component")


class ComponentMetrics(Collector):
    """Makes samples of the times of calls by component."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], CallTimes] = {}

    def add(self, service: str, component: str, times: CallTimes) -> None:
        """Adds what calls have taken.

        Args:
            service: its label.
            component: the component, ``other`` where its service is, or there are too many.
            times: of calls that have ended.
        """
        key = (service, component)
        is_known = key in self._times or len(self._times) < COMPONENTS_MAX
        if service == OTHER or not is_known:
            key = (OTHER, OTHER)
        self._times.setdefault(key, CallTimes()).add(times)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        queue = SummaryMetricFamily(
            "flowmesh_service_queue_seconds",
            "Time that calls of a component waited at their worker.",
            labels=_LABELS,
        )
        compute = SummaryMetricFamily(
            "flowmesh_service_compute_seconds",
            "Time from the start of a component's call, or of its batch, to its end.",
            labels=_LABELS,
        )
        batch = SummaryMetricFamily(
            "flowmesh_service_batch_size",
            "Calls in a batch of a component; for an engine, the calls that were running when each"
            " call began.",
            labels=_LABELS,
        )
        for labels, times in self._times.items():
            queue.add_metric(labels, times.calls, times.queue_s)
            compute.add_metric(labels, times.calls, times.compute_s)
            batch.add_metric(labels, times.batches, times.batched)
        return iter((queue, compute, batch))
