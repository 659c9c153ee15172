"""Composition root: makes the objects of one epoch and connects them.

Called by the control plane; the only place that passes on the machine's state.
"""

import time
from dataclasses import dataclass

from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.autoscaling.pool_rejections import explain_with_pools
from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_control.cache.result_uses import ResultUses
from flowmesh_control.cache_parts import build_cache_admin, build_deletion
from flowmesh_control.epoch_context import EpochContext
from flowmesh_control.epoch_parts import (
    LateSampling,
    append_line,
    build_admission,
    build_auditing,
    build_commands,
    build_evaluations,
    build_finalizer,
    build_gateway,
    build_listeners,
    build_metrics,
    build_openai,
    build_planner,
    build_repinning,
    build_revocation,
    build_sampling,
    build_service_tokens,
    build_serving,
    build_views,
    build_withholding,
    notify_settled,
)
from flowmesh_control.evaluators.evaluators import Evaluators
from flowmesh_control.loop.command_executor import CommandExecutor
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.loop.epoch import CurrentEpoch
from flowmesh_control.loop.evaluations import InlineEvaluations, QueuedEvaluations
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.loop.task_owners import WorkOwners
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_control.metrics.collection_meter import CollectionMeter
from flowmesh_control.metrics.worker_telemetry import WorkerTelemetry
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_control.queries.live_runs import LiveRuns
from flowmesh_control.queries.run_queries import RunQueries
from flowmesh_control.queries.status_document import StatusDocuments
from flowmesh_control.queries.step_outputs import StepOutputs
from flowmesh_control.quotas.namespace_usage import NamespaceUsage
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.rates import Rates
from flowmesh_control.quotas.run_quota import RunQuota
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_redaction import RunRedaction
from flowmesh_control.records.service_charges import ServiceChargeRecords
from flowmesh_control.request_log.fabric_events import FabricEvents
from flowmesh_control.runs.resume import RunResumption
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_control.services import ControlPlaneServices
from flowmesh_control.verification.verification import OutputVerification
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.events import Event
from flowmesh_core.placement import decide
from flowmesh_core.protocol.link_certificates import LINK_KEYS
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.result_index import ResultIndex
from flowmesh_store.retrying_blobs import with_retries


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


def assemble(context: EpochContext) -> EpochRuntime:
    """Makes the objects of an epoch; nothing runs yet."""
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
    uses, meter = ResultUses(store.records, context.clock), CollectionMeter()
    cache = ActionCache(
        store.records,
        ttl_s=context.settings.machine.result_ttl_s,
        clock=context.clock,
        index=result_index,
        withheld=context.withheld.hidden,
        refuses=context.revocations.refuses,
        used=uses.note if context.settings.collection.bytes_max else None,
    )
    lineage = LineageIndex(store.records)
    redaction = RunRedaction(store.records, context.archive, changes.changed)
    loops: list[EventLoop] = []
    samples = LateSampling()

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
    signer = LinkSigner(context.key_ring.derive(LINK_KEYS), context.clock)
    gateway = build_gateway(context, post, telemetry, events, signals.declaration, signer)
    finalizer = build_finalizer(context, lineage, logs, redaction, samples)
    evaluators = Evaluators.of(context.settings, context.catalog)
    evaluations = build_evaluations(context, evaluators, owners, post)
    listeners = build_listeners(context)
    executor = CommandExecutor(
        store=store,
        needed=with_retries(store),
        cache=cache,
        fleet=gateway,
        tasks=tasks,
        append=lambda uid, line: append_line(context.ledger, listeners, uid, line),
        settled=lambda attempt: notify_settled(listeners, attempt),
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
    run_quota = RunQuota(
        quotas,
        runs=state.runs,
        waiting=context.waiting,
        actions=state.actions,
        stored=stored,
    )
    planner = build_planner(context, cache, evaluators, signals)
    views = build_views(context, logs)
    admission = build_admission(context, content, views, run_quota, loop, evaluators, planner)
    registry, replica_planner = build_serving(context, content, admission, views, signals, loop)
    withholding = build_withholding(context, lineage, admission, loop)
    samples.made = build_sampling(context, cache, admission, withholding, loop)
    repinning = build_repinning(context, admission, finalizer, loop)
    connections = UnverifiedConnections(
        context.settings.connections_per_peer, context.settings.connections_max
    )
    metrics = build_metrics(
        context,
        loop,
        tasks,
        telemetry,
        gateway,
        signals,
        health,
        quotas,
        connections,
        meter,
        lambda: map(replica_planner.status, registry.all()),
    )
    commands = build_commands(context, admission, repinning, loop)
    openai = build_openai(context, content, commands, views, stored, signals)
    cache_admin = build_cache_admin(context, stored, openai, registry, uses)
    collection, deletion = build_deletion(context, cache_admin, openai, views, uses, meter)
    services = ControlPlaneServices(
        epoch=CurrentEpoch(context.epoch, context.clock, state),
        settings=context.settings,
        catalog=context.catalog,
        store=store,
        runs=LiveRuns(state, context.waiting, views),
        commands=commands,
        deletion=deletion,
        deleted=context.deleted,
        changes=changes,
        views=views,
        queries=RunQueries(state, views, context.clock),
        step_outputs=StepOutputs(views, context.store, cache),
        admission=admission,
        repinning=repinning,
        resumption=RunResumption(
            store.records, context.ledger, admission, context.waiting, loop.post_and_wait
        ),
        planner=planner,
        fleet=ConnectedFleet(state, loop.post_and_wait),
        fleet_queries=FleetQueries(
            state, context.catalog, health, lambda: meter.unreadable_runs, context.clock
        ),
        gateway=gateway,
        signals=signals,
        uploads=content,
        lineage=LineageIndex(store.records, hidden=context.deleted),
        documents=StatusDocuments(store, context.policies, context.references),
        policies=context.policies,
        quotas=quotas,
        run_quota=run_quota,
        stored=stored,
        uploaded=uploaded,
        usage=NamespaceUsage(state),
        rates=Rates(quotas, time.monotonic),
        audits=context.audits,
        auditing=build_auditing(context, cache, views, admission),
        cache=cache_admin,
        collection=collection,
        withholding=withholding,
        verification=OutputVerification(store, context.catalog, context.withheld.hidden),
        revocation=build_revocation(context, lineage, redaction, cache, cache_admin, gateway, loop),
        keys=context.keys,
        request_log=context.request_log.log,
        log_reader=context.request_log.reader,
        openai=openai,
        metrics=metrics,
        service_charges=ServiceChargeRecords(
            store.records, state.service_charges, epoch=context.epoch
        ),
        registry=registry,
        replica_planner=replica_planner,
        service_tokens=build_service_tokens(context, registry, signer),
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
