"""Makes the parts of an epoch from its context; ``wiring`` connects them."""

import time
from collections.abc import Callable, Iterable

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_control.audit.sample_verdicts import SampleVerdicts
from flowmesh_control.audit.sampled_audits import SampledAudits
from flowmesh_control.audit.submission import AuditSubmission
from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.epoch_context import EpochContext
from flowmesh_control.evaluators.evaluators import Evaluators
from flowmesh_control.loop.evaluations import InlineEvaluations, QueuedEvaluations
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_owners import WorkOwners
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.metrics.exposition import MetricsPage
from flowmesh_control.metrics.fleet import WorkerIntakeCounters
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.observability.listener import RunListener
from flowmesh_control.observability.run_log import RunLogListener
from flowmesh_control.observability.spans import SpanListener
from flowmesh_control.openai.models import ModelNames
from flowmesh_control.openai.services import OpenAiServices
from flowmesh_control.ports import RunSampling
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.run_outputs import RunOutputs
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.records.accounts import capture
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_redaction import RunRedaction
from flowmesh_control.request_log.fabric_events import FabricEvents
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.revocation.derivations import DerivationFinder
from flowmesh_control.revocation.erasure import Eraser
from flowmesh_control.revocation.service import RevocationService
from flowmesh_control.runs.admission import Admission
from flowmesh_control.runs.cancellations import RunCanceller
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.finalizer import RunFinalizer
from flowmesh_control.runs.repin import RepinService
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_planner import ReplicaPlanner
from flowmesh_control.serving.service_tokens import ServiceTokens
from flowmesh_control.settings import OPENAI_ENGINE, ControlSettings
from flowmesh_control.withholding.reruns import Reruns
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_control.workers.gateway import WorkerGateway
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.audit.drawing import SampleDraw
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.events import Event, TimeAdvanced
from flowmesh_core.machine.model import Run
from flowmesh_core.protocol.attempt_tokens import CONTEXT as ATTEMPT_TOKENS
from flowmesh_core.protocol.attempt_tokens import AttemptTokens
from flowmesh_core.protocol.messages import RouterAddress
from flowmesh_store.action_cache import ActionCache


def build_evaluations(
    context: EpochContext, evaluators: Evaluators, owners: WorkOwners, post: Callable[[Event], None]
) -> InlineEvaluations | QueuedEvaluations:
    """Returns what evaluates conditions: in this process, or in sandboxed ones."""
    if not context.settings.sandboxed_evaluators:
        return InlineEvaluations(post, context.marker.settle)
    return QueuedEvaluations(
        evaluators.of_runs,
        owners=owners,
        weight=owners.weight,
        post=post,
        failed=context.failed,
    )


def build_gateway(
    context: EpochContext,
    post: Callable[[Event], None],
    telemetry: WorkerTelemetry,
    events: FabricEvents,
    declared: Callable[[str], PoolDeclaration | None],
    signer: LinkSigner,
) -> WorkerGateway:
    """Returns the gateway that workers connect to."""
    return WorkerGateway(
        epoch=context.epoch,
        attempt_tokens=AttemptTokens(context.key_ring.derive(ATTEMPT_TOKENS)),
        link_signer=signer,
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


def build_listeners(context: EpochContext) -> list[RunListener]:
    """Returns what is called for each line of a ledger."""
    state = context.machine.state
    found: list[RunListener] = [RunLogListener(state)]
    if context.tracing is not None:
        found.append(SpanListener(state, context.tracing.send))
    return found


def append_line(ledger: LedgerWriter, listeners: list[RunListener], uid: str, line: Line) -> None:
    """Appends a line to a ledger, and passes it on."""
    ledger.append(uid, line)
    for listener in listeners:
        listener.appended(uid, line)


def notify_settled(listeners: list[RunListener], attempt: AttemptSettled) -> None:
    """Passes on that an attempt is settled."""
    for listener in listeners:
        listener.settled(attempt)


def build_metrics(
    context: EpochContext,
    loop: EventLoop,
    tasks: TaskPool,
    workers: WorkerTelemetry,
    gateway: WorkerGateway,
    signals: CapacitySignalSource,
    health: StoreHealth,
    quotas: Quotas,
    connections: UnverifiedConnections,
    collections: CollectionMeter,
    services: Callable[[], Iterable[ServiceStatus]],
) -> MetricsPage:
    """Returns the metrics of the control plane."""
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
        collections=collections,
        last_accounts=capture(state, {}, context.clock()),
        services=services,
    )


class LateSampling:
    """Calls the sampling of runs, which is made after the finalizer that calls it.

    Attributes:
        made: set once it is there.
    """

    made: RunSampling

    async def draw(self, run: Run) -> None:
        """As :meth:`RunSampling.draw`."""
        await self.made.draw(run)

    async def concluded(self, run: Run) -> None:
        """As :meth:`RunSampling.concluded`."""
        await self.made.concluded(run)


def build_sampling(
    context: EpochContext,
    cache: ActionCache,
    admission: Admission,
    withholding: Withholding,
    loop: EventLoop,
) -> SampleVerdicts:
    """Returns what compares a share of results on other workers."""
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


def build_finalizer(
    context: EpochContext,
    lineage: LineageIndex,
    logs: RunLogArchive,
    redaction: RunRedaction,
    samples: RunSampling,
) -> RunFinalizer:
    """Returns what writes the end of a run."""
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


def build_revocation(
    context: EpochContext,
    lineage: LineageIndex,
    redaction: RunRedaction,
    cache: ActionCache,
    admin: CacheAdmin,
    gateway: WorkerGateway,
    loop: EventLoop,
) -> RevocationService:
    """Returns what revokes content."""
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


def build_admission(
    context: EpochContext,
    content: UploadStore,
    views: RunViews,
    quota: RunQuota,
    loop: EventLoop,
    evaluators: Evaluators,
    planner: Planner,
) -> Admission:
    """Returns what accepts workflows."""
    state, waiting = context.machine.state, context.waiting
    return Admission(
        records=context.store.records,
        content=content,
        outputs=RunOutputs(views).references,
        policies=context.policies,
        quota=quota,
        compiler=evaluators.compiler,
        clock=context.clock,
        quarantine_salts=context.audits.quarantine.salts,
        unfinished=lambda uid: _has_no_verdict(state.runs.get(uid)) or uid in waiting,
        deleted=context.deleted,
        submitted=loop.post_and_wait,
        fixed_fleet=lambda: (
            [w.shape for w in state.workers.values()] if state.settings.unplaceable_after_s else []
        ),
        check_terms=planner.check_terms,
    )


def build_openai(
    context: EpochContext,
    uploads: UploadStore,
    commands: RunCommands,
    views: RunViews,
    stored: StoredBytes,
    signals: CapacitySignalSource,
) -> OpenAiServices:
    """Returns what serves OpenAI's API."""
    state, settings = context.machine.state, context.settings
    engine = context.catalog.newest(settings.openai_engine)
    if engine is None:
        raise FlowMeshError(
            f"no engine {settings.openai_engine!r} is installed",
            where="FLOWMESH_OPENAI_ENGINE",
            remedy=f"name an engine that is installed, or leave it out for {OPENAI_ENGINE}",
        )
    return OpenAiServices.of(
        store=context.store,
        uploads=uploads,
        commands=commands,
        views=views,
        models=ModelNames(settings.model_aliases),
        engine=engine,
        shapes=lambda: [
            *(w.shape for w in state.workers.values()),
            *(p.shape for p in signals.declared),
        ],
        stored=stored.added,
        patience_s=settings.machine.unplaceable_after_s,
        clock=context.clock,
    )


def build_serving(
    context: EpochContext,
    content: UploadStore,
    admission: Admission,
    views: RunViews,
    signals: CapacitySignalSource,
    loop: EventLoop,
) -> tuple[ServiceRegistry, ReplicaPlanner]:
    """Returns the services, and what plans their replicas."""
    registry = ServiceRegistry(
        records=context.services,
        catalog=context.catalog,
        content=content,
        policies=context.policies,
        revocations=context.revocations,
        admission=admission,
        views=views,
        clock=context.clock,
        spend=context.machine.state.service_spend,
    )
    planner = ReplicaPlanner(
        state=context.machine.state,
        registry=registry,
        catalog=context.catalog,
        pools=lambda: signals.declared,
        routers=tuple(_router_address(context.settings, a) for a in context.settings.routers),
        post_and_wait=loop.post_and_wait,
        clock=context.clock,
    )
    signals.add_floors(planner.floors)
    return registry, planner


def _router_address(settings: ControlSettings, address: str) -> RouterAddress:
    return RouterAddress(address, ca=settings.router_ca if address.startswith("tls:") else "")


def build_service_tokens(
    context: EpochContext, registry: ServiceRegistry, signer: LinkSigner
) -> ServiceTokens:
    """Returns the tokens of services' callers, and what routers read."""
    denied = context.refused_workers
    return ServiceTokens(registry, context.clock, signer.authorities, denied, context.epoch)


def build_auditing(
    context: EpochContext, cache: ActionCache, views: RunViews, admission: Admission
) -> AuditSubmission:
    """Returns what begins audits that a user asks for."""
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


def build_repinning(
    context: EpochContext, admission: Admission, finalizer: RunFinalizer, loop: EventLoop
) -> RepinService:
    """Returns what moves runs to other versions of engines."""
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


def build_commands(
    context: EpochContext, admission: Admission, repinning: RepinService, loop: EventLoop
) -> RunCommands:
    """Returns the commands on runs."""
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


def build_planner(
    context: EpochContext,
    cache: ActionCache,
    evaluators: Evaluators,
    signals: CapacitySignalSource,
) -> Planner:
    """Returns what forecasts workflows."""
    return Planner(
        state=context.machine.state,
        cache=cache,
        clock=context.clock,
        quarantine_salts=context.audits.quarantine.salts,
        conditions=evaluators.of_forecasts,
        pools=lambda: signals.declared,
    )


def build_withholding(
    context: EpochContext, lineage: LineageIndex, admission: Admission, loop: EventLoop
) -> Withholding:
    """Returns what withholds results."""
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


def build_views(context: EpochContext, logs: RunLogArchive) -> RunViews:
    """Returns what shows runs."""
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
