"""Puts the parts of one epoch together: which knows which, in one place.

The composition root: the one place that hands out the machine's state. Called by the control plane.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.audit.submission import AuditSubmission
from flowmesh_control.auth.worker_tokens import WorkerTokenVerifier
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.autoscaling.pool_rejections import counting_on
from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.command_executor import CommandExecutor
from flowmesh_control.loop.epoch import CurrentEpoch
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_owners import WorkOwners
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.observability.listener import RunListener
from flowmesh_control.observability.otlp import OtlpExporter
from flowmesh_control.observability.run_log import RunLogListener
from flowmesh_control.observability.spans import SpanListener
from flowmesh_control.ports import SecretReader
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_control.queries.live_runs import LiveRuns
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.run_queries import RunQueries
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.queries.status_document import StatusDocuments
from flowmesh_control.records.accounts import capture
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.runs.admission import Admission
from flowmesh_control.runs.cancellations import RunCanceller
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.finalizer import RunFinalizer
from flowmesh_control.runs.repin import RepinService
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.services import ControlPlaneServices
from flowmesh_control.settings import ControlSettings
from flowmesh_control.workers.gateway import WorkerGateway
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreError
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.events import Event
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.model import Run
from flowmesh_core.placement import decide
from flowmesh_core.protocol.wire_ids import attempt_key
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.retrying_blobs import patient
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What an epoch's parts are made of; the functions of this module alone see it.

    Attributes:
        failed: told of an error that ends this control plane.
        waiting: runs that cannot be taken up as they are pinned.
        refusal: why the store is only read; None where it is written too.
    """

    epoch: int
    store: Store
    store_meter: StoreMeter
    tracing: OtlpExporter | None
    settings: ControlSettings
    catalog: Catalog
    master_key: bytes
    tokens: WorkerTokenVerifier
    secrets: SecretReader
    clock: Clock
    machine: Machine
    ledger: LedgerWriter
    archive: Archive
    index: EndedRunIndex
    policies: CachePolicyStore
    audits: AuditRecords
    waiting: dict[str, RunStatus]
    failed: Callable[[BaseException], None]
    later_epoch_seen: Callable[[int], None]
    refusal: StoreError | None = None


@dataclass(frozen=True, slots=True)
class EpochRuntime:
    """What the control plane itself starts, feeds and stops, and what it offers to others.

    Attributes:
        tasks: do the store's work.
        health: what keeps it from being done.
    """

    loop: EventLoop
    tasks: TaskPool
    health: StoreHealth
    services: ControlPlaneServices


def assemble(
    *,
    epoch: int,
    store: Store,
    store_meter: StoreMeter,
    tracing: OtlpExporter | None,
    settings: ControlSettings,
    catalog: Catalog,
    master_key: bytes,
    tokens: WorkerTokenVerifier,
    secrets: SecretReader,
    clock: Clock,
    machine: Machine,
    ledger: LedgerWriter,
    archive: Archive,
    index: EndedRunIndex,
    policies: CachePolicyStore,
    audits: AuditRecords,
    waiting: dict[str, RunStatus],
    failed: Callable[[BaseException], None],
    later_epoch_seen: Callable[[int], None],
    refusal: StoreError | None = None,
) -> EpochRuntime:
    """Makes all parts of an epoch; nothing runs yet.

    Args:
        epoch: its number.
        store: of the control plane, as are the settings and the other ports that it was made with.
        store_meter: measures the store.
        tracing: where spans go; None where tracing is off.
        settings: fixed.
        catalog: the engine contracts.
        master_key: of references.
        tokens: what workers join with.
        secrets: reads secrets for attempts.
        clock: seconds since the epoch.
        machine: recovered.
        ledger: of the runs under way.
        archive: of those that have ended.
        index: of these, the latest.
        policies: loaded.
        audits: loaded.
        waiting: runs that cannot be taken up as they are pinned.
        failed: called with an error that ends this control plane.
        later_epoch_seen: called where a worker has seen a later leader.
        refusal: why the store is only read; None where it is written too.
    """
    return _assemble(
        EpochContext(
            epoch=epoch,
            store=store,
            store_meter=store_meter,
            tracing=tracing,
            settings=settings,
            catalog=catalog,
            master_key=master_key,
            tokens=tokens,
            secrets=secrets,
            clock=clock,
            machine=machine,
            ledger=ledger,
            archive=archive,
            index=index,
            policies=policies,
            audits=audits,
            waiting=waiting,
            failed=failed,
            later_epoch_seen=later_epoch_seen,
            refusal=refusal,
        )
    )


def _assemble(given: EpochContext) -> EpochRuntime:
    store, state = given.store, given.machine.state
    book, changes = LogBuffer(), RunChangeFeed()
    logs = RunLogArchive(store.records, book)
    telemetry = WorkerTelemetry(
        book, lambda name: w.shape.pool if (w := state.workers.get(name)) is not None else ""
    )
    trouble = StoreHealth()
    owners = WorkOwners(state)
    hands = TaskPool(failed=given.failed, waits=trouble.met, weight=owners.weight)
    cache = ActionCache(store.records, ttl_s=given.settings.machine.result_ttl_s, clock=given.clock)
    lineage = LineageIndex(store.records)
    content = UploadStore(store.blobs, given.master_key)
    loops: list[EventLoop] = []

    def post(event: Event) -> None:
        loops[0].post(event)

    def placed(snapshot: Snapshot) -> Decision:
        return counting_on(backlogs.declared, decide(snapshot, state.model), snapshot)

    gateway = _gateway(given, post, telemetry)
    finishing = _finishing(given, lineage, logs)
    tellers = _tellers(given)
    outside = CommandExecutor(
        blobs=store.blobs,
        needed=patient(store),
        cache=cache,
        fleet=gateway,
        hands=hands,
        append=lambda uid, line: _appended(given.ledger, tellers, uid, line),
        settled=lambda attempt: _settled(tellers, attempt),
        finish=finishing,
        changed=changes.changed,
        secrets=given.secrets,
        owners=owners,
        post=post,
    )
    loop = EventLoop(machine=given.machine, decide=placed, executor=outside, clock=given.clock)
    loops.append(loop)
    backlogs = CapacitySignalSource(state, given.clock)
    admission, views = _admission(given, content, loop), _views(given, logs)
    repinning = _repinning(given, admission, finishing, loop)
    metrics = _metrics(given, loop, hands, telemetry, gateway, backlogs, trouble)
    services = ControlPlaneServices(
        epoch=CurrentEpoch(given.epoch, given.clock, state),
        settings=given.settings,
        catalog=given.catalog,
        store=store,
        runs=LiveRuns(state, given.waiting, views),
        commands=_commands(given, admission, repinning, loop),
        changes=changes,
        views=views,
        queries=RunQueries(state, views, given.clock),
        admission=admission,
        repinning=repinning,
        planner=_planner(given, cache),
        fleet=ConnectedFleet(state, loop.ask),
        fleet_queries=FleetQueries(state, given.catalog, trouble, given.clock),
        gateway=gateway,
        signals=backlogs,
        uploads=content,
        lineage=lineage,
        documents=StatusDocuments(store.blobs, given.policies, given.master_key),
        policies=given.policies,
        audits=given.audits,
        auditing=_auditing(given, cache, views, admission),
        cache=_cache_admin(given),
        metrics=metrics,
        refusal=given.refusal,
    )
    return EpochRuntime(loop, hands, trouble, services)


def _gateway(
    given: EpochContext, post: Callable[[Event], None], telemetry: WorkerTelemetry
) -> WorkerGateway:
    return WorkerGateway(
        epoch=given.epoch,
        key=attempt_key(given.master_key),
        post=post,
        tokens=given.tokens,
        telemetry=telemetry,
        clock=time.monotonic,  # a step of the clock is no silence
        watchdog_s=given.settings.machine.watchdog_s,
        sync_interval_s=given.settings.sync_interval_s,
        knows=lambda name: name in given.machine.state.workers,
        later_epoch_seen=given.later_epoch_seen,
    )


def _tellers(given: EpochContext) -> list[RunListener]:
    state = given.machine.state
    found: list[RunListener] = [RunLogListener(state)]
    if given.tracing is not None:
        found.append(SpanListener(state, given.tracing.send))
    return found


def _appended(ledger: LedgerWriter, tellers: list[RunListener], uid: str, line: Line) -> None:
    ledger.append(uid, line)
    for teller in tellers:
        teller.appended(uid, line)


def _settled(tellers: list[RunListener], attempt: AttemptSettled) -> None:
    for teller in tellers:
        teller.settled(attempt)


def _metrics(
    given: EpochContext,
    loop: EventLoop,
    hands: TaskPool,
    workers: WorkerTelemetry,
    gateway: WorkerGateway,
    backlogs: CapacitySignalSource,
    trouble: StoreHealth,
) -> MetricsPage:
    state = given.machine.state
    return MetricsPage(
        state=state,
        loop=loop,
        hands=hands,
        workers=workers,
        dropped=gateway.drops.counts,
        audits=given.audits,
        backlogs=backlogs,
        store=given.store_meter,
        trouble=trouble,
        kept=capture(state, {}, given.clock()),
    )


def _finishing(given: EpochContext, lineage: LineageIndex, logs: RunLogArchive) -> RunFinalizer:
    return RunFinalizer(
        records=given.store.records,
        state=given.machine.state,
        ledger=given.ledger,
        lineage=lineage,
        audits=given.audits,
        logs=logs,
        archive=given.archive,
        index=given.index,
        master_key=given.master_key,
        clock=given.clock,
    )


def _admission(given: EpochContext, content: UploadStore, loop: EventLoop) -> Admission:
    state, waiting = given.machine.state, given.waiting
    return Admission(
        records=given.store.records,
        content=content,
        policies=given.policies,
        catalog=given.catalog,
        limits=given.settings.limits,
        clock=given.clock,
        bumps=given.audits.quarantine.bumps,
        unfinished=lambda uid: _goes_on(state.runs.get(uid)) or uid in waiting,
        submitted=loop.ask,
        fixed_fleet=lambda: (
            [w.shape for w in state.workers.values()] if state.settings.unplaceable_after_s else []
        ),
    )


def _auditing(
    given: EpochContext, cache: ActionCache, views: RunViews, admission: Admission
) -> AuditSubmission:
    return AuditSubmission(
        records=given.store.records,
        blobs=given.store.blobs,
        cache=cache,
        catalog=given.catalog,
        views=views,
        admission=admission,
        audits=given.audits,
        clock=given.clock,
    )


def _repinning(
    given: EpochContext, admission: Admission, finishing: RunFinalizer, loop: EventLoop
) -> RepinService:
    return RepinService(
        records=given.store.records,
        epoch=given.epoch,
        ledger=given.ledger,
        admission=admission,
        finishing=finishing,
        waiting=given.waiting,
        tell=loop.ask,
        clock=given.clock,
    )


def _commands(
    given: EpochContext, admission: Admission, repinning: RepinService, loop: EventLoop
) -> RunCommands:
    canceller = RunCanceller(
        records=given.store.records,
        clock=given.clock,
        waiting=given.waiting,
        forget=admission.forget,
        cancel_waiting=repinning.cancel,
        ask=loop.ask,
    )
    return RunCommands(admission, canceller, given.machine.state.runs, given.waiting, loop.ask)


def _planner(given: EpochContext, cache: ActionCache) -> Planner:
    return Planner(
        state=given.machine.state,
        cache=cache,
        clock=given.clock,
        bumps=given.audits.quarantine.bumps,
    )


def _cache_admin(given: EpochContext) -> CacheAdmin:
    return CacheAdmin(
        store=given.store,
        state=given.machine.state,
        archive=given.archive,
        result_ttl_s=given.settings.machine.result_ttl_s,
        clock=given.clock,
    )


def _goes_on(run: Run | None) -> bool:
    """Whether a run has no verdict yet: one that has may wait long for a store that is full."""
    return run is not None and not run.finishing


def _views(given: EpochContext, logs: RunLogArchive) -> RunViews:
    return RunViews(
        state=given.machine.state,
        records=given.store.records,
        ledger=given.ledger,
        archive=given.archive,
        waiting=given.waiting,
        logs=logs,
        master_key=given.master_key,
        clock=given.clock,
    )
