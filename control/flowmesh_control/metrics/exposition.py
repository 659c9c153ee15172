"""What ``GET /metrics`` answers: names begin with ``flowmesh_`` and stand in ``docs/names.md``.

Everything is read from the state when somebody asks. The operator adds collectors of its own.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics import billing, fleet, internal, work
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.records.accounts import AccountsRecord
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_core.machine.state import State


class MetricsPage(Collector):
    """The collector of the control plane, and those that were added to it.

    Attributes:
        kept: the accounts that were last written; what is shown of money is what they say.
    """

    def __init__(
        self,
        *,
        state: State,
        loop: EventLoop,
        hands: TaskPool,
        workers: WorkerTelemetry,
        dropped: Mapping[str, int],
        audits: AuditRecords,
        backlogs: CapacitySignalSource,
        store: StoreMeter,
        trouble: StoreHealth,
        kept: AccountsRecord,
    ) -> None:
        """Takes what is measured; ``dropped`` are items of workers' messages, by reason."""
        self.kept = kept
        self._state = state
        self._loop = loop
        self._hands = hands
        self._workers = workers
        self._dropped = dropped
        self._audits = audits
        self._backlogs = backlogs
        self._store = store
        self._trouble = trouble
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Shows another collector's metrics too; it is asked at every scrape.

        Raises:
            ValueError: a metric of that name is there already.
        """
        self._registry.register(collector)

    async def text(self) -> bytes:
        """All metrics in the text format.

        The figures are read at once, in the loop that changes them; a thread writes them down, so
        that nothing waits for a long page.
        """
        return await asyncio.to_thread(generate_latest, _Read(list(self._registry.collect())))

    def describe(self) -> Iterable[Metric]:
        """Nothing at registration: the figures exist only when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Reads every figure."""
        state, figures = self._state, self._state.figures
        yield from work.queue(state, self._backlogs)
        yield from work.done(figures)
        yield from work.used(figures)
        yield from work.distributions(figures)
        yield from billing.accounts(self.kept)
        yield from billing.shares(self.kept)
        yield from billing.budgets(state)
        yield from fleet.fleet(state, self._backlogs)
        yield from fleet.over_time(state, self._workers)
        yield from fleet.dropped(self._dropped)
        yield from internal.leading(self._loop, state.epoch)
        yield from internal.store(self._store, self._hands, self._trouble)
        yield from internal.audited(self._audits)


class _Read(Collector):
    """Metrics that were read already."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
