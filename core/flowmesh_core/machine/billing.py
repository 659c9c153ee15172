"""Who pays: splits workers' time among attempts and replicas, and attempts' cost among runs.

Σ receipts + services + fabric + unsettled = bill after every call. Every split is exact in integers
(``units.split_exactly``), and nothing is rounded anywhere else.
"""

from collections.abc import Sequence

from flowmesh_api.v1.why import AttemptDetails, AttemptLine, ScoredWorker
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES
from flowmesh_core.accounting.meter import Activity, SegmentShares, split_segment
from flowmesh_core.machine import serving
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Attempt, Run, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Usage
from flowmesh_core.units import NanoUsd, split_exactly

PLACEMENTS_EXPLAINED = 8
"""Batches of a step for which the ledger explains the placement."""
_SECONDS_PER_HOUR = 3600
ACTIVE = frozenset({"fetching", "loading", "queued", "running", "storing"})
_RUNNING = frozenset({"running", "storing"})


def accrue(state: State, worker: Worker, now_s: float) -> None:
    """Splits what a worker has cost since the last call among its attempts and replicas."""
    if worker.unpriced is not None:
        _accrue_unpriced(state, worker, worker.unpriced.advance(now_s), now_s)
        return
    delta = worker.meter.advance(now_s)
    if not delta:
        return
    state.book.bill_nanousd += delta
    active = _active(worker)
    shares = _shares(worker, active, delta)
    state.book.fabric_nanousd += shares.fabric
    worker.idle_nanousd += shares.fabric
    services: dict[str, int] = {}
    for key, share in (*shares.execution.items(), *shares.loading.items()):
        attempt = worker.attempts.get(key)
        if attempt is None:
            services[key] = share
            continue
        attempt.charged_nanousd += share
        if key in shares.loading:
            attempt.load_nanousd += share
    if worker.replica_states:
        serving.metered(state, worker, services, now_s)
    for attempt in active:
        attempt.metered_units = max(attempt.metered_units, attempt.units)


def _accrue_unpriced(state: State, worker: Worker, delta: int, now_s: float) -> None:
    """Splits the time of a worker without a price, which counts in fair shares alone."""
    active = _active(worker)
    shares = _shares(worker, active, delta)
    for key, share in (*shares.execution.items(), *shares.loading.items()):
        attempt = worker.attempts.get(key)
        if attempt is not None:
            attempt.unpriced_nanousd += share
    if worker.replica_states:
        serving.metered(state, worker, {}, now_s)
    for attempt in active:
        attempt.metered_units = max(attempt.metered_units, attempt.units)


def accrue_unobserved(state: State, worker: Worker, now_s: float) -> None:
    """Has the fabric pay for a time in which the control plane stood still.

    What each attempt would have been charged is remembered: :func:`charge_unobserved` charges as
    much of it as the worker's own report of the attempt accounts for.
    """
    if worker.unpriced is not None:
        worker.unpriced.advance(now_s)
    delta = worker.meter.advance(now_s)
    if not delta:
        return
    state.book.bill_nanousd += delta
    state.book.fabric_nanousd += delta
    worker.idle_nanousd += delta
    shares = _shares(worker, _active(worker), delta)
    for key, share in (*shares.execution.items(), *shares.loading.items()):
        if key in worker.attempts:
            worker.attempts[key].unobserved_nanousd += share


def _active(worker: Worker) -> list[Attempt]:
    return [a for a in worker.attempts.values() if a.phase in ACTIVE]


def _shares(worker: Worker, active: Sequence[Attempt], delta: int) -> SegmentShares[str]:
    activities = {
        a.attempt_id: Activity(
            a.info.signature, a.phase in _RUNNING, max(0, a.units - a.metered_units)
        )
        for a in active
    }
    if not worker.replica_states:
        return split_segment(delta, activities)
    replicas = serving.activities(worker)
    if replicas and not activities and not any(r.running for r in replicas.values()):
        return SegmentShares({}, serving.idle_shares(worker, delta, replicas), 0)
    return split_segment(delta, activities | replicas)


def resume(state: State, attempt: Attempt) -> None:
    """Continues an adopted attempt's account where the earlier epoch's accounts left it."""
    attempt.adopted = True
    charged = state.resumed_charges.pop(attempt.attempt_id, 0)
    attempt.charged_nanousd += charged
    state.book.fabric_nanousd -= charged


def charge_unobserved(state: State, worker: Worker, attempt: Attempt) -> None:
    """Charges an attempt that has ended for what it used while it was not observed.

    By its usage at the worker's price. An adopted attempt never pays more than its part of what no
    attempt was charged of that worker's bill; one that ran while the control plane stood still
    never more than its part of that time. Attempts that ran side by side share it.
    """
    usage = attempt.end.usage if attempt.end else Usage()
    busy_s = usage.run_s + usage.load_s
    used = int(worker.shape.price_nanousd_per_hour * busy_s / _SECONDS_PER_HOUR)
    beside = 1 + sum(a.adopted for a in worker.attempts.values())
    part = worker.idle_nanousd // beside if attempt.adopted else attempt.unobserved_nanousd
    due = max(0, min(used - attempt.charged_nanousd, part, worker.idle_nanousd))
    worker.idle_nanousd -= due
    state.book.fabric_nanousd -= due
    attempt.charged_nanousd += due
    if due:
        attempt.load_nanousd += int(due * usage.load_s / busy_s)


def settle(
    state: State,
    attempt: Attempt,
    payers: list[Subscriber],
    outcome: str,
    now_s: float,
    message: str = "",
) -> dict[str, int]:
    """Ends an attempt's account: its cost goes to the payers in equal parts, or to the fabric.

    The fabric also pays the part of a run that it pays for (``Plan.paid_by_fabric``). A run among
    the payers counts once, however many of its steps subscribe. In the ledger of the first payer
    the attempt is ``published``, in those of the others ``shared``.

    Returns:
        The share of each paying run, in nano-dollars, by uid.
    """
    state.attempts.pop(attempt.attempt_id, None)
    attempt.action.attempts.pop(attempt.attempt_id, None)
    release(state, attempt)
    usage = attempt.end.usage if attempt.end else None
    model = attempt.action.spec.model
    took_s = max(0.0, now_s - attempt.assigned_s)
    state.figures.used(attempt.pool, model, outcome, usage, took_s, now_s)
    state.emit(_settled(attempt, payers, outcome, now_s, message, usage))
    total = attempt.charged_nanousd
    if not payers:
        state.book.fabric_nanousd += total
        return {}
    # The whole amount is split once, and the units that do not divide go to the first runs in order
    # of uid. To round each share by itself would lose or invent a unit, and the receipts would not
    # add up to the bill. The order must not be that of subscription, since a restart restores runs
    # in another order and receipts must not depend on it. The loading part is split by the same
    # rule, so it is never more than the share that it is part of. The sums are checked after every
    # event in test_every_run_ends_and_the_money_adds_up_under_random_faults.
    ordered = _by_uid(payers)
    evenly = [1] * len(ordered)
    shares = split_exactly(total, evenly)
    loads = split_exactly(attempt.load_nanousd, evenly)
    times = split_exactly(attempt.unpriced_nanousd, evenly)
    usage = usage or Usage()
    ran = _details(state, attempt, usage)
    for payer, share, load, time in zip(ordered, shares, loads, times, strict=True):
        run = state.runs[payer.uid]
        if run.plan.paid_by_fabric:
            state.book.fabric_nanousd += share
            share = load = time = 0  # noqa: PLW2901 - nothing of it is the run's
        own_outcome = (
            outcome if payer.uid == payers[0].uid or outcome not in EXECUTED_OUTCOMES else "shared"
        )
        placed = _placement_reason(run, payer, attempt)
        line = _line(
            attempt,
            payer,
            own_outcome,
            now_s,
            message,
            usage,
            share,
            load,
            len(ordered),
            placed,
            ran,
        )
        state.append(run, line)
        state.book.receipts_nanousd += share
        state.figures.paid(
            run.plan.namespace,
            attempt.pool,
            model,
            nanousd=share,
            joules=usage.joules / len(ordered),
            estimated=usage.joules_estimated,
            now_s=now_s,
        )
        state.fair.charge(run.plan.namespace, NanoUsd(share + time), now_s)
        state.daily_spend.add(run.plan.namespace, share, now_s)
        run.unsettled.pop(attempt.attempt_id, None)
        state.touched[run.uid] = None
    return {p.uid: share for p, share in zip(ordered, shares, strict=True)}


def _settled(
    attempt: Attempt,
    payers: list[Subscriber],
    outcome: str,
    now_s: float,
    message: str,
    usage: Usage | None,
) -> AttemptSettled:
    action = attempt.action
    return AttemptSettled(
        attempt_id=attempt.attempt_id,
        action_id=action.key.action_id,
        engine=action.spec.contract.name,
        worker=attempt.worker,
        pool=attempt.pool,
        outcome=outcome,
        message=message,
        assigned_s=attempt.assigned_s,
        ended_s=now_s,
        usage=usage,
        subscribers=tuple((s.uid, s.path) for s in payers or action.subscribers),
    )


def _by_uid(payers: list[Subscriber]) -> list[Subscriber]:
    """The first subscriber of each run, in order of uid."""
    if len(payers) == 1:
        return payers
    return sorted({p.uid: p for p in reversed(payers)}.values(), key=lambda p: p.uid)


def _line(
    attempt: Attempt,
    payer: Subscriber,
    outcome: str,
    now_s: float,
    message: str,
    usage: Usage,
    share: int,
    load: int,
    sharers: int,
    placed: tuple[ScoredWorker, ...],
    ran: AttemptDetails | None,
) -> AttemptLine:
    return AttemptLine(
        time_s=now_s,
        step=payer.path,
        chunk=payer.part,
        action_id=attempt.action.key.action_id,
        attempt_id=attempt.attempt_id,
        worker=attempt.worker,
        incarnation=attempt.incarnation,
        outcome=outcome,
        bill_nanousd=attempt.charged_nanousd,
        share_nanousd=share,
        load_nanousd=load,
        sharers=sharers,
        units=usage.units,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        run_s=usage.run_s,
        load_s=usage.load_s,
        joules=usage.joules,
        joules_estimated=usage.joules_estimated,
        message=message,
        placed=placed,
        ran=ran,
    )


def _details(state: State, attempt: Attempt, usage: Usage) -> AttemptDetails | None:
    worker = state.workers.get(attempt.worker)
    if worker is None:
        return None
    spec, shape = attempt.action.spec, worker.shape
    return AttemptDetails(
        signature=attempt.info.signature,
        pool=shape.pool,
        device_class=shape.device_class,
        price_nanousd_per_hour=shape.price_nanousd_per_hour,
        devices=shape.devices,
        device_memory_mib=shape.device_memory_mib,
        assigned_s=attempt.assigned_s,
        memory_mib=attempt.memory_mib,
        component_bytes=spec.work.component_bytes,
        fetch_s=usage.fetch_s,
        put_s=usage.put_s,
    )


def _placement_reason(run: Run, payer: Subscriber, attempt: Attempt) -> tuple[ScoredWorker, ...]:
    """Why the attempt went to its worker, unless the ledger has explained the same batch."""
    step, placed = run.steps[payer.path], attempt.placed
    if placed is step.last_placement or step.placements_logged >= PLACEMENTS_EXPLAINED:
        return ()
    step.last_placement = placed
    step.placements_logged += 1
    return placed


def reserve(state: State, attempt: Attempt) -> None:
    """Reserves an attempt's predicted p95 cost in the budgets of its runs."""
    uids = attempt.action.accepting_runs(attempt.shape.trust)
    for uid, part in zip(
        uids, split_exactly(attempt.reserve_nanousd, [1] * len(uids)), strict=True
    ):
        run = state.runs[uid]
        run.reserved_nanousd += part
        state.reserved[run.plan.namespace] += part
        attempt.reserved[uid] = part


def release(state: State, attempt: Attempt) -> None:
    """Releases what :func:`reserve` reserved."""
    for uid, part in attempt.reserved.items():
        run = state.runs.get(uid)
        if run is not None:
            run.reserved_nanousd -= part
            state.reserved[run.plan.namespace] -= part
    attempt.reserved = {}
