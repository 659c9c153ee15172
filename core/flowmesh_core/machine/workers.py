"""Workers connect, report, and leave."""

from collections.abc import Iterable, Mapping

from msgspec import structs

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.accounting.meter import WorkerMeter
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine import (
    actions,
    attempts,
    billing,
    checkpoints,
    learning,
    serving,
    single_tenant,
    timeouts,
)
from flowmesh_core.machine.commands import ConfirmAttempts
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import WorkerSynced, WorkerTrustChanged
from flowmesh_core.machine.model import Action, Attempt
from flowmesh_core.machine.orphans import OrphanedAttempt
from flowmesh_core.machine.state import State, parse_attempt_id
from flowmesh_core.placement.settings import FAIR_SHARE_PRICE_NANOUSD_PER_HOUR
from flowmesh_core.protocol.messages import AttemptProgress, Hello, Sync

_SECONDS_PER_HOUR = 3600
NEAR_MAX = 4096
"""Digests remembered per worker."""


def connected(state: State, hello: Hello, generations: Mapping[str, int], now_s: float) -> None:
    """Adds a worker, or updates one that is back after a break, from its full state.

    Args:
        state: the machine's.
        hello: the full state.
        generations: that the attempts in it were made for.
        now_s: the time.
    """
    name = hello.shape.name
    worker = state.workers.get(name)
    if worker is not None and worker.incarnation != hello.incarnation:
        lost(state, name, "another process took its name", now_s)
        worker = None
    if worker is None:
        worker = _new(state, hello, now_s)
    worker.last_seen_s = now_s
    worker.prewarmed = None  # the last prewarm plan may not have arrived
    worker.serves = hello.serves
    serving.connected(state, worker, hello.replicas or (), now_s)
    worker.instances, worker.components = hello.instances, hello.components
    worker.loading_since_s = learning.loading_since_s(worker, hello.instances, now_s)
    worker.draining, worker.store_problem = hello.draining, hello.store_problem or ""
    single_tenant.joined(state, worker, hello.code_tenant)
    keep = _match_attempts(state, worker, hello, generations, now_s)
    _progress(state, worker, hello.attempts, now_s)
    billing.accrue(state, worker, now_s)
    checkpoints.reported(state, worker, hello.checkpoints, now_s)
    for end in hello.ended:
        attempts.ended(state, worker, end, generations.get(end.attempt_id), now_s)
    state.emit(ConfirmAttempts(name, tuple(keep)))
    state.dirty = True


def _new(state: State, hello: Hello, now_s: float) -> Worker:
    shape = hello.shape
    started_s = now_s - hello.age_s if hello.age_s else min(hello.started_s, now_s)
    billed = state.resumed_bills.pop(hello.incarnation, 0)
    price = shape.price_nanousd_per_hour
    if billed and price:
        # Where its age is not known, it is at least as old as an earlier epoch has billed.
        started_s = min(started_s, now_s - billed * _SECONDS_PER_HOUR / price)
    meter = WorkerMeter(price, started_s)
    meter.billed_nanousd = billed
    worker = Worker(shape, hello.incarnation, meter, started_s, now_s)
    if not price:
        worker.unpriced = WorkerMeter(FAIR_SHARE_PRICE_NANOUSD_PER_HOUR, now_s)
    state.workers[shape.name] = worker
    return worker


def _match_attempts(
    state: State, worker: Worker, hello: Hello, generations: Mapping[str, int], now_s: float
) -> list[str]:
    """Matches what the worker runs with what it should run; returns the attempts that go on."""
    keep = []
    reported = {p.attempt_id for p in hello.attempts} | {e.attempt_id for e in hello.ended}
    for progress in hello.attempts:
        attempt_id = progress.attempt_id
        if attempt_id in worker.attempts:
            if not worker.attempts[attempt_id].cancelled:
                keep.append(attempt_id)
            continue
        if attempt_id in state.attempts:
            continue  # it has ended, and its publication is under way
        generation = generations.get(attempt_id)
        if generation is not None and _goes_on(state, worker, attempt_id, generation, now_s):
            keep.append(attempt_id)
    for attempt in [a for name, a in worker.attempts.items() if name not in reported]:
        worker.remove(attempt.attempt_id)
        _never_arrived(state, worker, attempt, now_s)
    return keep


def _goes_on(state: State, worker: Worker, attempt_id: str, generation: int, now_s: float) -> bool:
    """Adopts an attempt that the machine does not know, or keeps it for later; else it stops."""
    key = parse_attempt_id(attempt_id)
    action = state.actions.get(key)
    if action is not None and action.state is ActionState.READY:
        if not attempts.may_adopt(action, worker, attempt_id, generation):
            return False
        attempts.adopt(state, worker, action, attempt_id, now_s)
        _not_lost(action, attempt_id)
        return True
    if not _may_be_wanted(state, action, now_s):
        return False
    # Several workers may come back with attempts of one action. The first is retained and the
    # others stop: it is the only one that is known to be there, since a worker that is still
    # missing may never come. To wait for all and compare progress would cost the whole recovery
    # window. To let all go on would run the work twice and leave all but one to the fabric's bill.
    # If the action has an attempt already, none goes on:
    # test_attempts_that_return_after_a_newer_one_was_sent_do_not_continue.
    ours = OrphanedAttempt(worker.name, attempt_id, generation)
    return state.orphaned_attempts.setdefault(key, ours) == ours


def _not_lost(action: Action, attempt_id: str) -> None:
    """The worker was only silent: what it still runs was not lost, and caused no loss."""
    if action.lost_attempt == attempt_id:
        action.lost_attempt = ""
        action.losses = max(0, action.losses - 1)
        for subscriber in action.lost_for:
            subscription = action.subscribers.get(subscriber)
            if subscription is not None:
                subscription.losses = max(0, subscription.losses - 1)


def _may_be_wanted(state: State, action: Action | None, now_s: float) -> bool:
    """Whether a reported attempt that the machine does not know may still be adopted."""
    if now_s < state.recovering_until_s:
        return True
    return action is not None and action.state is ActionState.LOOKING_UP


def _never_arrived(state: State, worker: Worker, attempt: Attempt, now_s: float) -> None:
    """An assignment was lost with the connection; the action is retried without counting it."""
    failure = Failure(FailureKind.DRAINED, f"{worker.name} did not receive it")
    attempts.failed(state, worker, attempt, failure, now_s)


def synced(state: State, event: WorkerSynced, now_s: float) -> None:
    """Applies what a worker reports as changed; a message of another incarnation is stale."""
    sync = event.sync
    worker = state.workers.get(event.name)
    if worker is None or worker.incarnation != event.incarnation:
        return
    worker.last_seen_s = now_s
    _progress(state, worker, sync.progress, now_s)
    for end in sync.ended:
        attempt = worker.attempts.get(end.attempt_id)
        if attempt is not None:
            attempt.phase = "running"
            attempt.units = max(attempt.units, end.usage.units)
    billing.accrue(state, worker, now_s)
    if sync.instances is not None:
        learning.instances_loaded(state, worker, sync.instances, now_s)
        worker.instances = sync.instances
        state.dirty = True
    if sync.components is not None:
        worker.components = sync.components
    if sync.replicas is not None:
        serving.reported(state, worker, sync.replicas, now_s)
        state.dirty = True
    _log(state, worker, sync)
    checkpoints.reported(state, worker, sync.checkpoints, now_s)
    for end in sync.ended:
        attempts.ended(state, worker, end, event.generations.get(end.attempt_id), now_s)
    said = (sync.draining, sync.store_problem)
    if said != (worker.draining, worker.store_problem):
        worker.draining, worker.store_problem = said
        state.dirty = True
    if sync.goodbye:
        lost(state, event.name, "it left", now_s, kind=FailureKind.DRAINED)


def trust_changed(state: State, event: WorkerTrustChanged) -> None:
    """Sets the trust of a worker's pool; what it is running counts as made with the less of both.

    A change for an earlier process of the same name is stale.
    """
    worker = state.workers.get(event.name)
    if worker is None or worker.incarnation != event.incarnation:
        return
    worker.shape = structs.replace(worker.shape, trust=event.trust)
    state.dirty = True


def cordoned(state: State, names: frozenset[str]) -> None:
    """Sets the workers that take nothing new; what runs goes on."""
    state.dirty = state.dirty or names != state.cordoned
    state.cordoned = names


def _progress(
    state: State, worker: Worker, reports: Iterable[AttemptProgress], now_s: float
) -> None:
    for p in reports:
        attempt = worker.attempts.get(p.attempt_id)
        if attempt is None:
            continue
        if p.phase == "running" and attempt.phase != "running":
            attempt.running_s = attempt.starts_s = now_s
            attempt.rate_mark = (now_s, p.units)
            actions.started(state, attempt.action, now_s)
            timeouts.begin(state, attempt)
        attempt.phase, attempt.loading = p.phase, p.phase == "loading"
        attempt.units = max(attempt.units, p.units)
        attempt.done, attempt.total, attempt.unit = p.done, p.total, p.unit
        since_s, units = attempt.rate_mark
        if now_s - since_s >= 1.0:
            attempt.tokens_rate = (p.units - units) / (now_s - since_s)
            attempt.rate_mark = (now_s, p.units)
        for uid in attempt.action.runs():
            state.changed(state.runs[uid])


def _log(state: State, worker: Worker, sync: Sync) -> None:
    for line in sync.logs:
        attempt = worker.attempts.get(line.attempt_id)
        if attempt is None:
            continue
        attempt.logged = True
        for s in attempt.action.subscribers:
            state.runs[s.uid].steps[s.path].add_log([line.text])


def lost(
    state: State, name: str, reason: str, now_s: float, *, kind: FailureKind = FailureKind.LOST
) -> None:
    """Removes a worker: closes its bill and fails its attempts.

    ``failure_policy`` decides what their actions do: most become ready again at once, one that has
    lost too many workers is poison, and one that must not be repeated fails.
    """
    worker = state.workers.get(name)
    if worker is None:
        return
    billing.accrue(state, worker, now_s)
    del state.workers[name]
    state.figures.workers_left[worker.shape.pool, kind] += 1
    state.dirty = True
    failure = Failure(kind, f"worker {name} is gone: {reason}")
    for attempt in list(worker.attempts.values()):
        worker.remove(attempt.attempt_id)
        attempts.failed(state, worker, attempt, failure, now_s)
    for key, orphan in list(state.orphaned_attempts.items()):
        if orphan.worker == name:
            del state.orphaned_attempts[key]


def trim_near(worker: Worker) -> None:
    """Limits how many digests are remembered of a worker's disk."""
    while len(worker.local_digests) > NEAR_MAX:
        worker.local_digests.pop(next(iter(worker.local_digests)))
