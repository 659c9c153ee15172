"""Puts the parts of one epoch together: who knows whom, in one place."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_control.accounts import capture
from flowmesh_control.admission import Admission
from flowmesh_control.archive import Archive
from flowmesh_control.auditing import Auditing
from flowmesh_control.audits import Audits
from flowmesh_control.backlogs import Backlogs
from flowmesh_control.changes import Changes
from flowmesh_control.clock import Clock
from flowmesh_control.content import Content
from flowmesh_control.ended_index import EndedIndex
from flowmesh_control.expecting import counting_on
from flowmesh_control.finishing import Finishing
from flowmesh_control.gateway import Gateway
from flowmesh_control.hands import Hands
from flowmesh_control.joining import Tokens
from flowmesh_control.kept_logs import KeptLogs
from flowmesh_control.ledger import Ledger
from flowmesh_control.lineage import Lineage
from flowmesh_control.logs import LogBook
from flowmesh_control.loop import Loop
from flowmesh_control.metrics.metrics import Metrics
from flowmesh_control.metrics.store_meter import StoreMeter
from flowmesh_control.metrics.workers import WorkerTelemetry
from flowmesh_control.outside import Outside
from flowmesh_control.policies import Policies
from flowmesh_control.ports import Secrets
from flowmesh_control.repinning import Repinning
from flowmesh_control.settings import ControlSettings
from flowmesh_control.telling.run_log import RunLog
from flowmesh_control.telling.spans import Spans
from flowmesh_control.telling.teller import Teller
from flowmesh_control.telling.tracing import Tracing
from flowmesh_control.trouble import Trouble
from flowmesh_control.views import Views
from flowmesh_control.work_owners import WorkOwners
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import StoreError
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.protocol.wire_ids import attempt_key
from flowmesh_core.run.commands import AttemptSettled
from flowmesh_core.run.events import Event
from flowmesh_core.run.ledger import Line
from flowmesh_core.run.machine import Machine
from flowmesh_core.run.model import Run
from flowmesh_core.scheduler import decide
from flowmesh_core.status.view import RunStatus
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.patient import patient
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class Given:
    """What an epoch's parts are made of.

    Attributes:
        failed: told of an error that ends this control plane.
        waiting: runs that cannot be taken up as they are pinned.
        refusal: why the store is only read; None where it is written too.
    """

    epoch: int
    store: Store
    store_meter: StoreMeter
    tracing: Tracing | None
    settings: ControlSettings
    catalog: Catalog
    master_key: bytes
    tokens: Tokens
    secrets: Secrets
    clock: Clock
    machine: Machine
    ledger: Ledger
    archive: Archive
    index: EndedIndex
    policies: Policies
    audits: Audits
    waiting: dict[str, RunStatus]
    failed: Callable[[BaseException], None]
    later_epoch_seen: Callable[[int], None]
    refusal: StoreError | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a leading control plane."""

    given: Given
    loop: Loop
    hands: Hands
    gateway: Gateway
    cache: ActionCache
    content: Content
    admission: Admission
    views: Views
    changes: Changes
    lineage: Lineage
    auditing: Auditing
    repinning: Repinning
    metrics: Metrics
    backlogs: Backlogs
    trouble: Trouble


def assemble(given: Given) -> Parts:
    """Makes all parts; nothing runs yet."""
    store, state = given.store, given.machine.state
    book, changes = LogBook(), Changes()
    logs = KeptLogs(store.records, book)
    telemetry = WorkerTelemetry(
        book, lambda name: w.shape.pool if (w := state.workers.get(name)) is not None else ""
    )
    trouble = Trouble()
    owners = WorkOwners(state)
    hands = Hands(failed=given.failed, waits=trouble.met, weight=owners.weight)
    cache = ActionCache(store.records, ttl_s=given.settings.machine.result_ttl_s, clock=given.clock)
    lineage = Lineage(store.records)
    content = Content(store.blobs, given.master_key)
    loops: list[Loop] = []

    def post(event: Event) -> None:
        loops[0].post(event)

    def placed(snapshot: Snapshot) -> Decision:
        return counting_on(backlogs.declared, decide(snapshot, state.model), snapshot)

    gateway = _gateway(given, post, telemetry)
    finishing = _finishing(given, lineage, logs)
    tellers = _tellers(given)
    outside = Outside(
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
    loop = Loop(machine=given.machine, decide=placed, executor=outside, clock=given.clock)
    loops.append(loop)
    backlogs = Backlogs(state, given.clock)
    admission, views = _admission(given, content, loop), _views(given, logs)
    return Parts(
        given=given,
        loop=loop,
        hands=hands,
        gateway=gateway,
        cache=cache,
        content=content,
        admission=admission,
        views=views,
        changes=changes,
        lineage=lineage,
        auditing=_auditing(given, cache, views, admission),
        repinning=_repinning(given, admission, finishing, loop),
        metrics=_metrics(given, loop, hands, telemetry, gateway, backlogs, trouble),
        backlogs=backlogs,
        trouble=trouble,
    )


def _gateway(given: Given, post: Callable[[Event], None], telemetry: WorkerTelemetry) -> Gateway:
    return Gateway(
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


def _tellers(given: Given) -> list[Teller]:
    state = given.machine.state
    found: list[Teller] = [RunLog(state)]
    if given.tracing is not None:
        found.append(Spans(state, given.tracing.send))
    return found


def _appended(ledger: Ledger, tellers: list[Teller], uid: str, line: Line) -> None:
    ledger.append(uid, line)
    for teller in tellers:
        teller.appended(uid, line)


def _settled(tellers: list[Teller], attempt: AttemptSettled) -> None:
    for teller in tellers:
        teller.settled(attempt)


def _metrics(
    given: Given,
    loop: Loop,
    hands: Hands,
    workers: WorkerTelemetry,
    gateway: Gateway,
    backlogs: Backlogs,
    trouble: Trouble,
) -> Metrics:
    state = given.machine.state
    return Metrics(
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


def _finishing(given: Given, lineage: Lineage, logs: KeptLogs) -> Finishing:
    return Finishing(
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


def _admission(given: Given, content: Content, loop: Loop) -> Admission:
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


def _auditing(given: Given, cache: ActionCache, views: Views, admission: Admission) -> Auditing:
    return Auditing(
        records=given.store.records,
        blobs=given.store.blobs,
        cache=cache,
        catalog=given.catalog,
        views=views,
        admission=admission,
        audits=given.audits,
        clock=given.clock,
    )


def _repinning(given: Given, admission: Admission, finishing: Finishing, loop: Loop) -> Repinning:
    return Repinning(
        records=given.store.records,
        epoch=given.epoch,
        ledger=given.ledger,
        admission=admission,
        finishing=finishing,
        waiting=given.waiting,
        tell=loop.ask,
        clock=given.clock,
    )


def _goes_on(run: Run | None) -> bool:
    """Whether a run has no verdict yet: one that has may wait long for a store that is full."""
    return run is not None and not run.finishing


def _views(given: Given, logs: KeptLogs) -> Views:
    return Views(
        state=given.machine.state,
        records=given.store.records,
        ledger=given.ledger,
        archive=given.archive,
        waiting=given.waiting,
        logs=logs,
        master_key=given.master_key,
        clock=given.clock,
    )
