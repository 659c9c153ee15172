"""The answer to ``GET /metrics``; all names begin with ``flowmesh_`` and are in ``docs/names.md``.

Values are read from the machine's state at each scrape. The operator adds collectors of its own.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics import billing, fleet, internal, services, work
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.records.accounts import AccountsRecord
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_core.machine.state import State


class MetricsPage(Collector):
    """The collector of the control plane, and those that were added to it.

    Attributes:
        last_accounts: the accounts last written, from which the metrics of money are read.
    """

    def __init__(
        self,
        *,
        state: State,
        loop: EventLoop,
        tasks: TaskPool,
        workers: WorkerTelemetry,
        intake: fleet.WorkerIntakeCounters,
        audits: AuditRecords,
        backlogs: CapacitySignalSource,
        store: StoreMeter,
        trouble: StoreHealth,
        request_log: RequestLog,
        quota_refusals: Mapping[str, int],
        connections: UnverifiedConnections,
        collections: CollectionMeter,
        last_accounts: AccountsRecord,
        services: Callable[[], Iterable[ServiceStatus]],
    ) -> None:
        """Registers the control plane's metrics.

        Args:
            state: the machine's.
            loop: the event loop.
            tasks: the pool of store tasks.
            workers: counters that workers report.
            intake: what the worker gateway counts.
            audits: verdicts and quarantine.
            backlogs: the capacity signal.
            store: measures store operations.
            trouble: the store's health.
            request_log: its counters.
            quota_refusals: limit of quotas → how often it has refused something.
            connections: those that have shown no valid token.
            collections: counters of collections of the store.
            last_accounts: the accounts as of now.
            services: returns the status of every service.
        """
        self.last_accounts = last_accounts
        self._state = state
        self._loop = loop
        self._tasks = tasks
        self._workers = workers
        self._intake = intake
        self._audits = audits
        self._backlogs = backlogs
        self._store = store
        self._trouble = trouble
        self._request_log = request_log
        self._quota_refusals = quota_refusals
        self._connections = connections
        self._collections = collections
        self._services = services
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Adds another collector, which is read at every scrape.

        Raises:
            ValueError: a metric of one of its names is registered already.
        """
        self._registry.register(collector)

    async def text(self) -> bytes:
        """Returns all metrics in the text format.

        The values are read in the event loop, which changes them; a thread formats them, so that a
        long page does not block the loop.
        """
        return await asyncio.to_thread(generate_latest, _Read(list(self._registry.collect())))

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: the metrics exist only when they are collected."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields every metric."""
        state, figures = self._state, self._state.figures
        yield from work.queue(state, self._backlogs)
        yield from work.done(figures)
        yield from work.used(figures)
        yield from work.distributions(figures)
        yield from billing.accounts(self.last_accounts)
        yield from billing.shares(self.last_accounts)
        yield from billing.budgets(state)
        yield from fleet.fleet(state, self._backlogs)
        yield from fleet.over_time(state, self._workers)
        yield from fleet.intake(self._intake)
        statuses = list(self._services())
        yield from services.replicas(statuses, state)
        yield from services.capacities(statuses)
        yield from services.idle(state)
        yield from services.over_time(figures)
        yield from internal.leading(self._loop, state.epoch)
        yield from internal.store(self._store, self._tasks, self._trouble)
        yield from internal.audited(self._audits)
        yield from internal.request_log(self._request_log)
        yield from internal.refused_by_quotas(self._quota_refusals)
        yield from internal.connections(self._connections)
        yield from internal.collections(self._collections)


class _Read(Collector):
    """Metrics that were collected already."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found
