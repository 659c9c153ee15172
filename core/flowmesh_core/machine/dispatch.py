"""From the ready set to a snapshot, and from a decision to assignments."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from flowmesh_api.v1.enums import ActionState, RejectionCause
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import (
    Decision,
    InstanceView,
    Placement,
    Rejection,
    SignatureInfo,
    Snapshot,
    Tier,
    WorkerView,
)
from flowmesh_core.machine import (
    actions,
    attempts,
    billing,
    checkpoints,
    publications,
    ready_actions,
    workers,
)
from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Attempt, Run, Worker
from flowmesh_core.machine.state import State, attempt_id_of
from flowmesh_core.protocol.messages import Assignment, InputRef
from flowmesh_core.units import Digest, usd_text

REASONS_EVERY_S = 0.25
"""Seconds between updates of the reasons why steps wait."""
SETTLED_S = 2.0
"""Seconds after the newest worker's start from which a fixed fleet counts as complete."""
ANY_MOMENT_S = 0.5
"""Remaining seconds of a load that takes longer than predicted."""

NEVER = frozenset(
    {
        RejectionCause.ENGINE_NOT_OFFERED,
        RejectionCause.NOT_HONOURED,
        RejectionCause.MEMORY,
        RejectionCause.DEVICES,
        RejectionCause.LABELS,
        RejectionCause.USER_CODE,
        RejectionCause.NOT_BUILT_IN,
    }
)
"""Causes that waiting does not remove on a fleet that does not grow.

A version that no worker offers is not one of them: such a run waits until it is re-pinned."""


def snapshot(state: State, now_s: float) -> Snapshot:
    """Returns what the scheduler decides on; valid until the next one or a change of state.

    It has no actions during a recovery, or while too many results wait for space in the store.
    """
    blocked = now_s < state.recovering_until_s or publications.holds_back(state) is not None
    index = ReadyIndex() if blocked else ready_actions.index(state, now_s)
    return Snapshot(
        workers=[_worker(state, w, now_s) for _, w in sorted(state.workers.items())],
        ready=index,
        signatures={
            signature: informed(state, signature, index.sequences[signature] / count)
            for signature, count in index.signatures.items()
        },
        fair_share=_fair_share(state, now_s),
        now_s=now_s,
        tenant_weights=state.fair.weights,
    )


def _fair_share(state: State, now_s: float) -> dict[str, float]:
    """What tenants paid recently, and what is reserved for what they run now, over weight."""
    weights = state.fair.weights
    shares: dict[str, float] = {}
    for run in state.runs.values():
        tenant = run.plan.namespace
        if tenant not in shares:
            shares[tenant] = state.fair.virtual_time(tenant, now_s)
        shares[tenant] += run.reserved_nanousd / weights.get(tenant, 1.0)
    return shares


def informed(state: State, signature: Digest, sequences: float) -> SignatureInfo:
    """Returns what a signature requires, raised by what running out of memory has taught."""
    info = state.signatures[signature]
    if sequences > 1.0:
        info = replace(info, sequences=sequences)
    learned = state.learned
    factors, reserve = learned.capacity_factors(signature), learned.reserve_mib(signature)
    more_than = _exceeded(state, signature, max(info.requirement.memory_mib, reserve))
    if not (factors or more_than or reserve):
        return info
    requirement = replace(
        info.requirement,
        memory_mib=max(info.requirement.memory_mib, reserve),
        capacity_factor=factors,
        min_memory_by_class=more_than,
    )
    return replace(info, requirement=requirement)


def _exceeded(state: State, signature: Digest, memory_mib: int) -> dict[str, int]:
    """Learned bounds on device memory, where some worker that has enough exceeds them.

    Where none does, a bound would exclude every other action of the signature, whose data may well
    fit; then an action that does not fit fails by itself.
    """
    bounds = state.learned.more_than_mib(signature)
    if not bounds:
        return bounds
    shapes = [w.shape for w in state.workers.values()]
    shapes = [s for s in shapes if s.device_memory_mib >= memory_mib]
    if any(s.device_memory_mib > bounds.get(s.device_class, -1) for s in shapes):
        return bounds
    return {}


def as_if_ready(state: State, action: Action, now_s: float) -> tuple[ReadyAction, Snapshot]:
    """Returns an action that waits or runs, and the snapshot to score its candidates on now."""
    action_view, current = ready_actions.view(state, action), snapshot(state, now_s)
    info = {
        action_view.signature: informed(state, action_view.signature, action_view.work.sequences)
    }
    return action_view, replace(current, signatures={**current.signatures, **info})


_INF = float("inf")


def _worker(state: State, worker: Worker, now_s: float) -> WorkerView:
    by_signature: dict[Digest, list[Attempt]] = defaultdict(list)
    for attempt in worker.held.values():
        by_signature[attempt.action.spec.info.signature].append(attempt)
    instances = {}
    reserved = 0
    for instance in worker.lanes:
        if instance.state == "closing":
            continue  # new assignments get a new host, of the size that they require
        assigned = by_signature.pop(instance.signature, [])
        loads = instance.state in ("starting", "loading")
        instances[instance.signature] = _instance_view(
            instance.signature,
            instance.capacity,
            instance.memory_mib,
            assigned,
            now_s,
            starting=loads,
        )
        reserved += _reserved_mib(assigned, instance.memory_mib)
    for signature, assigned in by_signature.items():
        info = assigned[0].action.spec.info
        memory = assigned[0].memory_mib or info.requirement.memory_mib
        instances[signature] = _instance_view(
            signature, info.capacity, memory, assigned, now_s, starting=True
        )
        reserved += _reserved_mib(assigned, memory)
    workers.trim_near(worker)
    near = dict.fromkeys(worker.near, Tier.DISK)
    near.update({c.digest: Tier(c.tier) for c in worker.components})
    total = worker.shape.device_memory_mib * worker.shape.devices
    return WorkerView(worker.shape, instances, near, total - reserved, not state.takes_work(worker))


def _reserved_mib(assigned: list[Attempt], instance_mib: int) -> int:
    """What the hosts of a signature reserve: a shared one, and one per isolated attempt."""
    alone = [a for a in assigned if a.alone]
    shared_mib = instance_mib if len(alone) < len(assigned) else 0
    return shared_mib + sum(a.memory_mib or instance_mib for a in alone)


def _instance_view(
    signature: Digest,
    capacity: int,
    memory_mib: int,
    assigned: list[Attempt],
    now_s: float,
    *,
    starting: bool = False,
) -> InstanceView:
    remaining_s, ready_s, tightest_s, isolated = 0.0, _INF, _INF, False
    for a in assigned:  # in one pass and without calls, since there may be a thousand of them
        begins_s = a.assigned_s if a.assigned_s > a.starts_s else a.starts_s
        ends_in_s = begins_s + a.predicted_s - now_s
        remaining_s = ends_in_s if ends_in_s > remaining_s else remaining_s
        ready_s = a.starts_s if a.starts_s < ready_s else ready_s
        tightest_s = a.deadline_s if a.deadline_s < tightest_s else tightest_s
        isolated = isolated or a.action.isolate
    remaining_load_s = ready_s - now_s if assigned else 0.0
    return InstanceView(
        signature=signature,
        capacity=max(1, capacity),
        held=len(assigned),
        remaining_s=remaining_s,
        load_remaining_s=max(ANY_MOMENT_S, remaining_load_s) if starting else 0.0,
        memory_mib=memory_mib,
        isolated=isolated,
        tightest_deadline_s=tightest_s,
    )


def decided(state: State, decision: Decision, now_s: float) -> None:
    """Turns placements into assignments, and retains the reasons of what was not placed."""
    state.rejections = decision.rejections
    for placement in decision.placements:
        worker = state.workers.get(placement.worker)
        if worker is None:
            state.dirty = True
            continue
        billing.accrue(state, worker, now_s)
        memory_mib = informed(state, Digest(placement.signature), 1.0).requirement.memory_mib
        count_before = len(worker.held)
        for index, name in enumerate(placement.actions):
            scope, _, action_id = name.partition("/")
            action = state.actions.get(ActionKey(scope, Digest(action_id)))
            if action is not None and _still_wanted(action, placement):
                _assign(state, worker, action, placement, index, memory_mib, now_s)
        if len(worker.held) > count_before:
            _count_batch(state, worker, Digest(placement.signature))
    _wait_reasons(state, decision, now_s)


def _count_batch(state: State, worker: Worker, signature: Digest) -> None:
    """Observes how many attempts of the signature the worker has after a batch joined them."""
    engine = state.signatures[signature].requirement.engine
    together = sum(a.action.spec.info.signature == signature for a in worker.held.values())
    state.figures.batch[engine].observe(together)


def _still_wanted(action: Action, placement: Placement) -> bool:
    if action.state is ActionState.READY:
        return True
    return action.state is ActionState.RUNNING and len(action.attempts) == 1


def _assign(
    state: State,
    worker: Worker,
    action: Action,
    placement: Placement,
    index: int,
    memory_mib: int,
    now_s: float,
) -> None:
    reserve = placement.reserve_nanousd[index]
    runs = [state.runs[uid] for uid in action.runs()]
    if not _affordable(state, action, runs, reserve):
        return
    action.tries += 1
    state.attempts_made += 1
    attempt = Attempt(
        attempt_id=attempt_id_of(action.key, state.epoch, state.attempts_made),
        action=action,
        worker=worker.name,
        incarnation=worker.incarnation,
        assigned_s=now_s,
        predicted_s=placement.predicted_s[index],
        starts_s=now_s + placement.terms.start_s,
        reserve_nanousd=reserve,
        memory_mib=memory_mib,
        deadline_s=ready_actions.deadline_at_s(runs),
        placed=placement.candidates,
        pool=worker.shape.pool,
        alone=action.isolate,
    )
    state.figures.dispatched[worker.shape.pool] += 1
    if action.tries == 1:
        state.figures.waited_s[worker.shape.pool].observe(max(0.0, now_s - action.ready_s))
    state.demand.count(action.spec.info.signature, action.spec.work, runs[0].plan.weights, now_s)
    attempts.hold(state, worker, action, attempt, now_s)
    billing.reserve(state, attempt)
    state.emit(
        Assign(
            worker.name,
            _assignment(action, attempt, runs),
            action.spec.secrets,
            runs[0].plan.namespace,
        )
    )


def _affordable(state: State, action: Action, runs: list[Run], reserve: int) -> bool:
    """Whether some subscribed run can pay its part; fails the action where none can."""
    part = -(-reserve // len(runs))
    short = [r for r in runs if _over(r, part)]
    if len(short) < len(runs):
        return True
    run = short[0]
    failure = Failure(
        FailureKind.BUDGET,
        f"the next action is predicted to cost up to {usd_text(part)}; of the budget of "
        f"{usd_text(run.budget_nanousd)} {usd_text(run.paid_nanousd)} are spent and "
        f"{usd_text(run.reserved_nanousd)} reserved",
        "raise spec.budgetUsd, or request fewer rows, samples or tokens",
    )
    if not any(run.reserved_nanousd for run in short):
        actions.fail(state, action, failure)
    return False


def _over(run: Run, part: int) -> bool:
    if not run.budget_nanousd:
        return False
    return run.paid_nanousd + run.reserved_nanousd + part > run.budget_nanousd


def _assignment(action: Action, attempt: Attempt, runs: list[Run]) -> Assignment:
    spec = action.spec
    return Assignment(
        attempt_id=attempt.attempt_id,
        action_id=action.key.action_id,
        signature=spec.info.signature,
        engine=spec.contract.name,
        contract=spec.contract.version,
        implementation=spec.contract.implementation,
        params=spec.params,
        fields=spec.fields,
        inputs={
            port: InputRef(a, {d: spec.inline[d] for d in a.blobs() if d in spec.inline})
            for port, a in spec.inputs.items()
        },
        signature_params=spec.signature_params,
        components=spec.components,
        row_output=spec.row_output,
        memory_mib=attempt.memory_mib,
        tensor_parallel=spec.requirement.tensor_parallel,
        priority=ready_actions.priority(runs),
        timeout_s=spec.timeout_s,
        isolate=action.isolate,
        cache_salt=spec.cache_salt,
        run_uids=tuple(r.uid for r in runs),
        resume=checkpoints.resume(action, attempt),
    )


def _wait_reasons(state: State, decision: Decision, now_s: float) -> None:
    """Sets why steps wait; fails what no worker of a fixed fleet can ever run."""
    full = publications.holds_back(state)
    if not (decision.rejections or full) or 0.0 <= now_s - state.reasons_told_s < REASONS_EVERY_S:
        return
    state.reasons_told_s = now_s
    if full is not None:
        detail = f"nothing new begins while results wait for space: {full.message}; {full.remedy}"
        for action in state.ready.values():
            _show_wait_reason(state, action, full.kind, detail)
        return
    pausing, others = _reasons(decision.rejections)
    patience_s = state.settings.unplaceable_after_s
    newest_s = max((w.started_s for w in state.workers.values()), default=now_s)
    for action in list(state.ready.values()):
        reasons = pausing if action.not_before_s > now_s else others
        found = reasons.get(action.spec.info.signature)
        if found is None:
            continue
        # A fixed fleet starts together, and what its first workers offer the others offer too.
        settled = found.cause is RejectionCause.NOT_HONOURED and now_s - newest_s > SETTLED_S
        late = settled or now_s - action.ready_s > patience_s
        if patience_s and found.cause in NEVER and late:
            actions.fail(state, action, Failure(FailureKind.UNPLACEABLE, found.detail))
            continue
        _show_wait_reason(state, action, found.cause, found.detail)


def _show_wait_reason(state: State, action: Action, reason: str, detail: str) -> None:
    """Sets why an action waits, in the steps that wait for it."""
    for s in action.subscribers:
        run = state.runs[s.uid]
        step = run.steps[s.path]
        if (step.wait_reason, step.wait_detail) != (reason, detail):
            step.wait_reason, step.wait_detail = reason, detail
            state.changed(run)


_Reasons = dict[Digest, Rejection]


def _reasons(rejections: Sequence[Rejection]) -> tuple[_Reasons, _Reasons]:
    """By signature, the reason for its actions in backoff, and the reason for its others.

    A backoff is one action's own. Of several other reasons the one that may pass is taken, since an
    action must not fail for what stops another one.
    """
    pausing: _Reasons = {}
    others: _Reasons = {}
    for rejection in sorted(rejections, key=lambda r: (r.cause in NEVER, -r.count)):
        found = pausing if rejection.cause is RejectionCause.BACKOFF else others
        found.setdefault(rejection.signature, rejection)
    return pausing, others
