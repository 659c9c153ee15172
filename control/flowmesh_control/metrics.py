"""The control plane's metrics, in a registry of its own: names begin with ``flowmesh_``.

Most are read from the state when somebody asks; counters of the loop and gauges of workers come
from what passes by. Workers' own figures travel in their synchronisations.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flowmesh_control.audits import Audits
from flowmesh_control.hands import Hands
from flowmesh_control.logs import LogBook
from flowmesh_control.loop import Loop
from flowmesh_core.audit.report import Verdict
from flowmesh_core.protocol.messages import Sync
from flowmesh_core.run.state import State
from flowmesh_core.status.project import fabric_status
from flowmesh_core.units import NANO_PER_USD


class WorkerTelemetry:
    """Keeps what workers say of themselves: their log lines and their latest figures."""

    def __init__(self, logs: LogBook) -> None:
        """Takes the book of logs."""
        self._logs = logs
        self.figures: dict[str, dict[str, float]] = {}

    def synced(self, worker: str, sync: Sync) -> None:
        """A worker's message."""
        if sync.logs or sync.ended:
            self._logs.add(sync)
        if sync.metrics:
            self.figures.setdefault(worker, {}).update(sync.metrics)

    def left(self, worker: str) -> None:
        """The worker is gone, and its figures with it."""
        self.figures.pop(worker, None)


class Metrics(Collector):
    """The collector behind ``GET /metrics``."""

    def __init__(
        self,
        *,
        state: State,
        loop: Loop,
        hands: Hands,
        workers: WorkerTelemetry,
        audits: Audits,
    ) -> None:
        """Takes what is measured."""
        self._state = state
        self._loop = loop
        self._hands = hands
        self._workers = workers
        self._audits = audits
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing at registration: the figures exist only when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Reads every figure."""
        yield from self._fabric()
        yield from self._loop_figures()
        yield from self._audit_figures()
        yield from self._worker_figures()

    def _fabric(self) -> Iterator[Metric]:
        fabric = fabric_status(self._state)
        yield _gauge("flowmesh_workers_connected", "Connected workers.", fabric.workers)
        yield _gauge("flowmesh_runs_live", "Runs under way.", len(self._state.runs))
        yield _gauge("flowmesh_actions_ready", "Actions that wait.", fabric.ready_actions)
        yield _gauge("flowmesh_actions_running", "Attempts under way.", fabric.running_actions)
        yield _counter("flowmesh_actions_executed", "Actions that were run.", fabric.executed)
        hits = CounterMetricFamily(
            "flowmesh_actions_hits", "Actions that needed no run, by kind.", labels=["kind"]
        )
        hits.add_metric(["published"], fabric.hits_published)
        hits.add_metric(["in-flight"], fabric.hits_in_flight)
        hits.add_metric(["step-level"], fabric.hits_step_level)
        yield hits
        money = CounterMetricFamily(
            "flowmesh_money_usd",
            "Dollars: bill = receipts + fabric + unsettled.",
            labels=["account"],
        )
        for account, nanousd in (
            ("bill", fabric.bill_nanousd),
            ("receipts", fabric.receipts_nanousd),
            ("fabric", fabric.fabric_nanousd),
            ("unsettled", fabric.unsettled_nanousd),
            ("saved", fabric.saved_nanousd),
        ):
            money.add_metric([account], nanousd / NANO_PER_USD)
        yield money
        waiting = GaugeMetricFamily(
            "flowmesh_actions_rejected", "Ready actions not placed, by cause.", labels=["cause"]
        )
        causes: dict[str, int] = {}
        for rejection in self._state.rejections:
            causes[rejection.cause] = causes.get(rejection.cause, 0) + rejection.count
        for cause, count in sorted(causes.items()):
            waiting.add_metric([cause], count)
        yield waiting

    def _loop_figures(self) -> Iterator[Metric]:
        yield _gauge("flowmesh_leader_epoch", "The epoch that is led.", self._state.epoch)
        yield _counter("flowmesh_events_applied", "Events applied.", self._loop.applied)
        yield _gauge("flowmesh_events_waiting", "Events that wait.", self._loop.backlog)
        yield _counter(
            "flowmesh_scheduler_decisions", "Scheduling decisions.", self._loop.decisions
        )
        yield _counter("flowmesh_scheduler_seconds", "Seconds spent deciding.", self._loop.decide_s)
        yield _gauge("flowmesh_jobs_waiting", "Store work nobody has begun.", self._hands.backlog)
        yield _counter("flowmesh_store_retries", "Store work tried again.", self._hands.retries)

    def _audit_figures(self) -> Iterator[Metric]:
        audited = CounterMetricFamily(
            "flowmesh_audit_actions", "Actions drawn by audits, by verdict.", labels=["verdict"]
        )
        for verdict in Verdict:
            audited.add_metric([verdict], self._audits.counts[verdict])
        yield audited
        yield _gauge(
            "flowmesh_audit_quarantined",
            "Signature classes in quarantine.",
            len(self._audits.quarantine.bumps()),
        )

    def _worker_figures(self) -> Iterator[Metric]:
        figures = GaugeMetricFamily(
            "flowmesh_worker_figure", "What a worker says of itself.", labels=["worker", "name"]
        )
        for worker, values in sorted(self._workers.figures.items()):
            for name, value in sorted(values.items()):
                figures.add_metric([worker, name], value)
        yield figures


def _gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, doc, value=value)


def _counter(name: str, doc: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, doc, value=value)
