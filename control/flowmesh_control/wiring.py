"""Composition root: makes the objects of one epoch and connects them.

Called by the control plane; the only place that passes on the machine's state.
"""

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.audit.sample_verdicts import SampleVerdicts
from flowmesh_control.audit.sampled_audits import SampledAudits
from flowmesh_control.audit.submission import AuditSubmission
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.auth.worker_tokens import WorkerTokenVerifier
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.autoscaling.pool_rejections import explain_with_pools
from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.cache.log_retention import LogRetention
from flowmesh_control.evaluators.evaluators import Evaluators
from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.command_executor import CommandExecutor
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.loop.epoch import CurrentEpoch
from flowmesh_control.loop.evaluations import InlineEvaluations, QueuedEvaluations
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_owners import WorkOwners
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.metrics.fleet import WorkerIntakeCounters
from flowmesh_control.metrics.store_latency import StoreMeter
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.observability.listener import RunListener
from flowmesh_control.observability.otlp import OtlpExporter
from flowmesh_control.observability.run_log import RunLogListener
from flowmesh_control.observability.spans import SpanListener
from flowmesh_control.ports import RunSampling, SecretReader
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_control.queries.live_runs import LiveRuns
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.run_queries import RunQueries
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.queries.status_document import StatusDocuments
from flowmesh_control.quotas.namespace_usage import NamespaceUsage
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.rates import Rates
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_control.records.accounts import capture
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.key_admin import KeyAdmin
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_redaction import RunRedaction
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_control.request_log.fabric_events import FabricEvents
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.services import RequestLogServices
from flowmesh_control.revocation.derivations import DerivationFinder
from flowmesh_control.revocation.erasure import Eraser
from flowmesh_control.revocation.service import RevocationService
from flowmesh_control.runs.admission import Admission
from flowmesh_control.runs.cancellations import RunCanceller
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.finalizer import RunFinalizer
from flowmesh_control.runs.repin import RepinService
from flowmesh_control.runs.resume import RunResumption
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.services import ControlPlaneServices
from flowmesh_control.settings import ControlSettings
from flowmesh_control.verification.verification import OutputVerification
from flowmesh_control.withholding.reruns import Reruns
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_control.workers.gateway import PoolTrust, WorkerGateway
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.accounting.daily_totals import Hours
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.audit.drawing import SampleDraw
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreError
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.events import Event, TimeAdvanced
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.model import Run
from flowmesh_core.placement import decide
from flowmesh_core.protocol.attempt_tokens import CONTEXT as ATTEMPT_TOKENS
from flowmesh_core.protocol.attempt_tokens import AttemptTokens
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.result_index import ResultIndex
from flowmesh_store.retrying_blobs import with_retries
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class EpochContext:
    """The inputs of :func:`assemble` as one value; only this module sees it.

    Attributes:
        failed: called with an error that ends this control plane.
        waiting: runs that cannot continue with the versions that they are pinned to.
        uploaded: what namespaces uploaded in the last day, by hour.
        refusal: why the store is read-only; None where it can be written.
    """

    epoch: int
    store: Store
    store_meter: StoreMeter
    tracing: OtlpExporter | None
    settings: ControlSettings
    catalog: Catalog
    key_ring: KeyRing
    references: ReferenceIssuer
    keys: KeyAdmin
    request_log: RequestLogServices
    tokens: WorkerTokenVerifier
    secrets: SecretReader
    clock: Clock
    machine: Machine
    marker: CurrentEventMarker
    refused_workers: Set[str]
    trust_of: PoolTrust
    ledger: LedgerWriter
    archive: Archive
    index: EndedRunIndex
    policies: CachePolicyStore
    audits: AuditRecords
    withheld: WithheldRecords
    revocations: Revocations
    waiting: dict[str, RunStatus]
    uploaded: Mapping[str, Hours]
    failed: Callable[[BaseException], None]
    later_epoch_seen: Callable[[int], None]
    refusal: StoreError | None = None


@dataclass(frozen=True, slots=True)
class EpochRuntime:
    """What the control plane starts and stops, and the services that it offers.

    Attributes:
        tasks: executes store tasks.
        evaluations: has conditions evaluated, by ``evaluators``.
        health: the error, if any, for which they are retried.
        result_index: is loaded while the control plane leads.
    """

    loop: EventLoop
    marker: CurrentEventMarker
    tasks: TaskPool
    evaluations: InlineEvaluations | QueuedEvaluations
    evaluators: Evaluators
    health: StoreHealth
    result_index: ResultIndex
    revocations: Revocations
    services: ControlPlaneServices


def assemble(
    *,
    epoch: int,
    store: Store,
    store_meter: StoreMeter,
    tracing: OtlpExporter | None,
    settings: ControlSettings,
    catalog: Catalog,
    key_ring: KeyRing,
    keys: KeyAdmin,
    request_log: RequestLogServices,
    tokens: WorkerTokenVerifier,
    secrets: SecretReader,
    clock: Clock,
    machine: Machine,
    marker: CurrentEventMarker,
    refused_workers: Set[str],
    trust_of: PoolTrust,
    ledger: LedgerWriter,
    archive: Archive,
    index: EndedRunIndex,
    policies: CachePolicyStore,
    audits: AuditRecords,
    withheld: WithheldRecords,
    revocations: Revocations,
    waiting: dict[str, RunStatus],
    uploaded: Mapping[str, Hours],
    failed: Callable[[BaseException], None],
    later_epoch_seen: Callable[[int], None],
    refusal: StoreError | None = None,
) -> EpochRuntime:
    """Makes the objects of an epoch; nothing runs yet.

    Args:
        epoch: its number.
        store: of the control plane, as are the settings and the ports below.
        store_meter: measures the store.
        tracing: where spans go; None where tracing is off.
        settings: of the control plane.
        catalog: the engine contracts.
        key_ring: signs references and attempt ids.
        keys: administers the keys of the records.
        request_log: gathers, reads and deletes entries of the request log.
        tokens: verifies the tokens that workers join with.
        secrets: reads secrets for attempts.
        clock: Unix time in seconds.
        machine: recovered.
        marker: says which event is being applied.
        refused_workers: names of workers that may not join.
        trust_of: returns the trust of a pool.
        ledger: of the runs under way.
        archive: of the runs that have ended.
        index: of ended runs, the latest ones.
        policies: loaded.
        audits: loaded.
        withheld: loaded.
        revocations: loaded.
        waiting: runs that cannot continue with the versions that they are pinned to.
        uploaded: what namespaces uploaded in the last day, by hour.
        failed: called with an error that ends this control plane.
        later_epoch_seen: called when a worker has seen a later leader.
        refusal: why the store is read-only; None where it can be written.
    """
    return _assemble(
        EpochContext(
            epoch=epoch,
            store=store,
            store_meter=store_meter,
            tracing=tracing,
            settings=settings,
            catalog=catalog,
            key_ring=key_ring,
            references=ReferenceIssuer(key_ring, policies),
            keys=keys,
            request_log=request_log,
            tokens=tokens,
            secrets=secrets,
            clock=clock,
            machine=machine,
            marker=marker,
            refused_workers=refused_workers,
            trust_of=trust_of,
            ledger=ledger,
            archive=archive,
            index=index,
            policies=policies,
            audits=audits,
            withheld=withheld,
            revocations=revocations,
            waiting=waiting,
            uploaded=uploaded,
            failed=failed,
            later_epoch_seen=later_epoch_seen,
            refusal=refusal,
        )
    )


def _assemble(context: EpochContext) -> EpochRuntime:
    store, state = context.store, context.machine.state
    buffer, changes = LogBuffer(), RunChangeFeed()
    logs = RunLogArchive(store.records, buffer)
    telemetry = WorkerTelemetry(
        buffer, lambda name: w.shape.pool if (w := state.workers.get(name)) is not None else ""
    )
    health = context.request_log.health
    events = FabricEvents(context.request_log.log)
    owners = WorkOwners(state)
    tasks = TaskPool(failed=context.failed, waits=health.record_failure, weight=owners.weight)
    result_index = ResultIndex()
    cache = ActionCache(
        store.records,
        ttl_s=context.settings.machine.result_ttl_s,
        clock=context.clock,
        index=result_index,
        withheld=context.withheld.hidden,
        refuses=context.revocations.refuses,
    )
    lineage = LineageIndex(store.records)
    redaction = RunRedaction(store.records, context.archive, changes.changed)
    loops: list[EventLoop] = []
    sampling: list[RunSampling] = []

    def post(event: Event) -> None:
        loops[0].post(event)

    def decide_with_pools(snapshot: Snapshot) -> Decision:
        return explain_with_pools(signals.declared, decide(snapshot, state.model), snapshot)

    async def post_and_wait(event: Event) -> None:
        await loops[0].post_and_wait(event)

    quotas = Quotas(post_and_wait)
    stored = StoredBytes(quotas, store.sweepable_blobs)
    uploaded = UploadedBytes(quotas, stored, context.clock, context.uploaded)
    content = UploadStore(store, context.references, context.revocations, stored.added)
    signals = CapacitySignalSource(state, context.clock)
    gateway = _gateway(context, post, telemetry, events, signals.declaration)
    finalizer = _finalizer(context, lineage, logs, redaction, _LateSampling(sampling))
    evaluators = Evaluators.of(context.settings, context.catalog)
    evaluations = _evaluations(context, evaluators, owners, post)
    listeners = _listeners(context)
    executor = CommandExecutor(
        store=store,
        needed=with_retries(store),
        cache=cache,
        fleet=gateway,
        tasks=tasks,
        append=lambda uid, line: _append_line(context.ledger, listeners, uid, line),
        settled=lambda attempt: _notify_settled(listeners, attempt),
        finish=finalizer,
        changed=changes.changed,
        secrets=context.secrets,
        secrets_used=events.secrets_used,
        owners=owners,
        evaluate=evaluations.submit,
        published=stored.published,
        post=post,
    )
    loop = EventLoop(
        machine=context.machine,
        decide=decide_with_pools,
        executor=executor,
        marker=context.marker,
        clock=context.clock,
    )
    loops.append(loop)
    cache_admin = _cache_admin(context, stored)
    run_quota = RunQuota(
        quotas,
        runs=state.runs,
        waiting=context.waiting,
        actions=state.actions,
        stored=stored,
    )
    admission = _admission(context, content, run_quota, loop, evaluators)
    views = _views(context, logs)
    withholding = _withholding(context, lineage, admission, loop)
    sampling.append(_sampling(context, cache, admission, withholding, loop))
    repinning = _repinning(context, admission, finalizer, loop)
    connections = UnverifiedConnections(
        context.settings.connections_per_peer, context.settings.connections_max
    )
    metrics = _metrics(
        context, loop, tasks, telemetry, gateway, signals, health, quotas, connections
    )
    services = ControlPlaneServices(
        epoch=CurrentEpoch(context.epoch, context.clock, state),
        settings=context.settings,
        catalog=context.catalog,
        store=store,
        runs=LiveRuns(state, context.waiting, views),
        commands=_commands(context, admission, repinning, loop),
        changes=changes,
        views=views,
        queries=RunQueries(state, views, context.clock),
        admission=admission,
        repinning=repinning,
        resumption=RunResumption(
            store.records, context.ledger, admission, context.waiting, loop.post_and_wait
        ),
        planner=_planner(context, cache, evaluators),
        fleet=ConnectedFleet(state, loop.post_and_wait),
        fleet_queries=FleetQueries(state, context.catalog, health, context.clock),
        gateway=gateway,
        signals=signals,
        uploads=content,
        lineage=lineage,
        documents=StatusDocuments(store, context.policies, context.references),
        policies=context.policies,
        quotas=quotas,
        run_quota=run_quota,
        stored=stored,
        uploaded=uploaded,
        usage=NamespaceUsage(state),
        rates=Rates(quotas, time.monotonic),
        audits=context.audits,
        auditing=_auditing(context, cache, views, admission),
        cache=cache_admin,
        withholding=withholding,
        verification=OutputVerification(store, context.catalog, context.withheld.hidden),
        revocation=_revocation(context, lineage, redaction, cache, cache_admin, gateway, loop),
        keys=context.keys,
        request_log=context.request_log.log,
        log_reader=context.request_log.reader,
        log_retention=_log_retention(context),
        metrics=metrics,
        connections=connections,
        refusal=context.refusal,
    )
    return EpochRuntime(
        loop,
        context.marker,
        tasks,
        evaluations,
        evaluators,
        health,
        result_index,
        context.revocations,
        services,
    )


def _evaluations(
    context: EpochContext, evaluators: Evaluators, owners: WorkOwners, post: Callable[[Event], None]
) -> InlineEvaluations | QueuedEvaluations:
    if not context.settings.sandboxed_evaluators:
        return InlineEvaluations(post, context.marker.settle)
    return QueuedEvaluations(
        evaluators.of_runs,
        owners=owners,
        weight=owners.weight,
        post=post,
        failed=context.failed,
    )


def _gateway(
    context: EpochContext,
    post: Callable[[Event], None],
    telemetry: WorkerTelemetry,
    events: FabricEvents,
    declared: Callable[[str], PoolDeclaration | None],
) -> WorkerGateway:
    return WorkerGateway(
        epoch=context.epoch,
        attempt_tokens=AttemptTokens(context.key_ring.derive(ATTEMPT_TOKENS)),
        post=post,
        tokens=context.tokens,
        telemetry=telemetry,
        log=events,
        clock=time.monotonic,  # a jump of the wall clock must not look like silent workers
        wall_clock=context.clock,
        watchdog_s=context.settings.machine.watchdog_s,
        sync_interval_s=context.settings.sync_interval_s,
        knows=lambda name: name in context.machine.state.workers,
        later_epoch_seen=context.later_epoch_seen,
        trust_of=context.trust_of,
        refused=context.refused_workers,
        declared=declared,
        forgotten=context.revocations.forgotten,
    )


def _listeners(context: EpochContext) -> list[RunListener]:
    state = context.machine.state
    found: list[RunListener] = [RunLogListener(state)]
    if context.tracing is not None:
        found.append(SpanListener(state, context.tracing.send))
    return found


def _append_line(ledger: LedgerWriter, listeners: list[RunListener], uid: str, line: Line) -> None:
    ledger.append(uid, line)
    for listener in listeners:
        listener.appended(uid, line)


def _notify_settled(listeners: list[RunListener], attempt: AttemptSettled) -> None:
    for listener in listeners:
        listener.settled(attempt)


def _metrics(
    context: EpochContext,
    loop: EventLoop,
    tasks: TaskPool,
    workers: WorkerTelemetry,
    gateway: WorkerGateway,
    signals: CapacitySignalSource,
    health: StoreHealth,
    quotas: Quotas,
    connections: UnverifiedConnections,
) -> MetricsPage:
    state = context.machine.state
    return MetricsPage(
        state=state,
        loop=loop,
        tasks=tasks,
        workers=workers,
        intake=WorkerIntakeCounters(gateway.drops.counts, gateway.paused),
        audits=context.audits,
        backlogs=signals,
        store=context.store_meter,
        trouble=health,
        request_log=context.request_log.log,
        quota_refusals=quotas.refusals,
        connections=connections,
        last_accounts=capture(state, {}, context.clock()),
    )


class _LateSampling:
    """Calls the sampling of runs, which is made after the finalizer that calls it."""

    def __init__(self, made: list[RunSampling]) -> None:
        self._made = made

    async def draw(self, run: Run) -> None:
        await self._made[0].draw(run)

    async def concluded(self, run: Run) -> None:
        await self._made[0].concluded(run)


def _sampling(
    context: EpochContext,
    cache: ActionCache,
    admission: Admission,
    withholding: Withholding,
    loop: EventLoop,
) -> SampleVerdicts:
    sampled = SampledAudits(
        state=context.machine.state,
        store=context.store,
        cache=cache,
        admission=admission,
        draw=SampleDraw(context.key_ring),
        clock=context.clock,
    )
    return SampleVerdicts(
        sampled=sampled,
        audits=context.audits,
        withholding=withholding,
        post_and_wait=loop.post_and_wait,
    )


def _finalizer(
    context: EpochContext,
    lineage: LineageIndex,
    logs: RunLogArchive,
    redaction: RunRedaction,
    samples: RunSampling,
) -> RunFinalizer:
    return RunFinalizer(
        records=context.store.records,
        state=context.machine.state,
        ledger=context.ledger,
        lineage=lineage,
        audits=context.audits,
        samples=samples,
        logs=logs,
        archive=context.archive,
        index=context.index,
        references=context.references,
        revocations=context.revocations,
        redaction=redaction,
        clock=context.clock,
    )


def _revocation(
    context: EpochContext,
    lineage: LineageIndex,
    redaction: RunRedaction,
    cache: ActionCache,
    admin: CacheAdmin,
    gateway: WorkerGateway,
    loop: EventLoop,
) -> RevocationService:
    store, state = context.store, context.machine.state
    return RevocationService(
        store=store,
        state=state,
        ledger=context.ledger,
        revocations=context.revocations,
        finder=DerivationFinder(store, lineage, state),
        redaction=redaction,
        eraser=Eraser(store, admin),
        cache=cache,
        workers=gateway,
        post_and_wait=loop.post_and_wait,
        signer=context.request_log.signer,
        public_keys=PublicKeys(store.records, context.request_log.signer),
        clock=context.clock,
    )


def _admission(
    context: EpochContext,
    content: UploadStore,
    quota: RunQuota,
    loop: EventLoop,
    evaluators: Evaluators,
) -> Admission:
    state, waiting = context.machine.state, context.waiting
    return Admission(
        records=context.store.records,
        content=content,
        policies=context.policies,
        quota=quota,
        compiler=evaluators.compiler,
        clock=context.clock,
        quarantine_salts=context.audits.quarantine.salts,
        unfinished=lambda uid: _has_no_verdict(state.runs.get(uid)) or uid in waiting,
        submitted=loop.post_and_wait,
        fixed_fleet=lambda: (
            [w.shape for w in state.workers.values()] if state.settings.unplaceable_after_s else []
        ),
    )


def _auditing(
    context: EpochContext, cache: ActionCache, views: RunViews, admission: Admission
) -> AuditSubmission:
    return AuditSubmission(
        records=context.store.records,
        store=context.store,
        cache=cache,
        catalog=context.catalog,
        views=views,
        admission=admission,
        audits=context.audits,
        clock=context.clock,
    )


def _repinning(
    context: EpochContext, admission: Admission, finalizer: RunFinalizer, loop: EventLoop
) -> RepinService:
    return RepinService(
        records=context.store.records,
        epoch=context.epoch,
        ledger=context.ledger,
        admission=admission,
        finishing=finalizer,
        waiting=context.waiting,
        post_and_wait=loop.post_and_wait,
        clock=context.clock,
    )


def _commands(
    context: EpochContext, admission: Admission, repinning: RepinService, loop: EventLoop
) -> RunCommands:
    canceller = RunCanceller(
        records=context.store.records,
        clock=context.clock,
        waiting=context.waiting,
        forget=admission.forget,
        cancel_waiting=repinning.cancel,
        post_and_wait=loop.post_and_wait,
    )
    return RunCommands(
        admission, canceller, context.machine.state.runs, context.waiting, loop.post_and_wait
    )


def _planner(context: EpochContext, cache: ActionCache, evaluators: Evaluators) -> Planner:
    return Planner(
        state=context.machine.state,
        cache=cache,
        clock=context.clock,
        quarantine_salts=context.audits.quarantine.salts,
        conditions=evaluators.of_forecasts,
    )


def _log_retention(context: EpochContext) -> LogRetention:
    log = context.request_log
    return LogRetention(
        log.records,
        context.store.sweepable_records,
        log.signer,
        ttl_s=context.settings.request_log_ttl_s,
    )


def _cache_admin(context: EpochContext, stored: StoredBytes) -> CacheAdmin:
    return CacheAdmin(
        store=context.store,
        state=context.machine.state,
        archive=context.archive,
        result_ttl_s=context.settings.machine.result_ttl_s,
        withheld=context.withheld,
        clock=context.clock,
        collected=stored.recount_all,
    )


def _withholding(
    context: EpochContext, lineage: LineageIndex, admission: Admission, loop: EventLoop
) -> Withholding:
    return Withholding(
        store=context.store,
        state=context.machine.state,
        archive=context.archive,
        lineage=lineage,
        withheld=context.withheld,
        reruns=Reruns(context.store.records, admission),
        applied=lambda: loop.post_and_wait(TimeAdvanced()),
        clock=context.clock,
    )


def _has_no_verdict(run: Run | None) -> bool:
    """Whether a run has no verdict yet; one that has may still wait for a full store."""
    return run is not None and not run.finishing


def _views(context: EpochContext, logs: RunLogArchive) -> RunViews:
    return RunViews(
        state=context.machine.state,
        records=context.store.records,
        ledger=context.ledger,
        archive=context.archive,
        waiting=context.waiting,
        logs=logs,
        references=context.references,
        clock=context.clock,
    )
