"""From a decision of the scheduler to assignments, and to why the others wait."""

from collections.abc import Sequence

from flowmesh_api.v1.enums import ActionState, RejectionCause
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.fleet.snapshot import Decision, Placement, PlacementKey, Rejection
from flowmesh_core.machine import (
    actions,
    attempts,
    billing,
    budgets,
    checkpoints,
    effective_requirement,
    namespace_limits,
    pending_publications,
    ready_actions,
    single_tenant,
    suspects,
)
from flowmesh_core.machine.commands import Assign
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.fleet_snapshot import informed
from flowmesh_core.machine.model import Action, Attempt, Run, Subscriber
from flowmesh_core.machine.state import State, attempt_id_of
from flowmesh_core.placement.constraints import unmet_remedy
from flowmesh_core.protocol.messages import Assignment, InputRef
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest

REASONS_EVERY_S = 0.25
"""Seconds between updates of the reasons why steps wait; longer where more than this many wait."""
REASONS_AT_ONCE = 1_000
SETTLED_S = 2.0
_INF = float("inf")

NEVER = frozenset(
    {
        RejectionCause.ENGINE_NOT_OFFERED,
        RejectionCause.VARIANT_UNSUPPORTED,
        RejectionCause.MEMORY,
        RejectionCause.DEVICES,
        RejectionCause.LABELS,
        RejectionCause.USER_CODE,
        RejectionCause.SANDBOX,
        RejectionCause.NOT_BUILT_IN,
        RejectionCause.TRUST,
    }
)
"""Causes that waiting does not remove on a fleet that does not grow.

A version that no worker offers is not one of them: such a run waits until it is re-pinned."""


_READY = ActionState.READY
_RUNNING = ActionState.RUNNING
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def decided(state: State, decision: Decision, now_s: float) -> None:
    """Turns placements into assignments, and retains the reasons of what was not placed."""
    state.rejections = decision.rejections
    for placement in decision.placements:
        worker = state.workers.get(placement.worker)
        if worker is None:
            state.dirty = True
            continue
        signature = Digest(placement.signature)
        # A group of suspects may have ended since the snapshot, and its signature with it.
        if signature not in state.signatures or suspects.run_elsewhere(state, signature, worker):
            state.dirty = True
            continue
        billing.accrue(state, worker, now_s)
        memory_mib = informed(state, signature, 1.0).requirement.memory_mib
        count_before = len(worker.attempts)
        for index, name in enumerate(placement.actions):
            scope, _, action_id = name.partition("/")
            action = state.actions.get(ActionKey(scope, Digest(action_id)))
            if action is not None and _still_wanted(action, signature, worker):
                _assign(state, worker, action, placement, index, memory_mib, now_s)
        if len(worker.attempts) > count_before:
            _count_batch(state, worker, signature)
    _wait_reasons(state, decision, now_s)


def _count_batch(state: State, worker: Worker, signature: Digest) -> None:
    """Observes how many attempts of the signature the worker has after a batch joined them."""
    engine = state.signatures[signature].requirement.engine
    together = len(worker.by_signature[signature])
    state.figures.batch[engine].observe(together)


def _still_wanted(action: Action, signature: Digest, worker: Worker) -> bool:
    """Whether an action waits still, or for a replica, and for a worker of this kind."""
    if action.state is _READY:
        info = action.shown
        return info.signature == signature and info.requirement.min_trust <= worker.shape.trust
    return action.state is _RUNNING and len(action.attempts) == 1


def _assign(
    state: State,
    worker: Worker,
    action: Action,
    placement: Placement,
    index: int,
    memory_mib: int,
    now_s: float,
) -> None:
    reserve, signature = placement.reserve_nanousd[index], Digest(placement.signature)
    if not budgets.affordable(state, action, reserve, worker.shape.trust):
        return
    if state.limits and not namespace_limits.admits(state, action, worker, now_s):
        return
    tenant = ready_actions.code_tenant(state, action)
    if not single_tenant.bind(worker, tenant):
        state.dirty = True
        return
    runs = [state.runs[uid] for uid in action.runs()]
    info = action.shown
    if info.signature != signature:
        info = state.signatures[signature]
    action.attempt_count += 1
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
        info=info,
        shape=worker.shape,
        memory_mib=memory_mib,
        deadline_s=ready_actions.deadline_at_s(runs),
        placed=placement.candidates,
        pool=worker.shape.pool,
        alone=action.isolate,
        case=action.suspects.case if action.suspects is not None else None,
        code_tenant=tenant,
        tenant=ready_actions.sole_tenant(state, action),
    )
    state.figures.dispatched[worker.shape.pool] += 1
    if action.attempt_count == 1:
        state.figures.waited_s[worker.shape.pool].observe(max(0.0, now_s - action.ready_s))
    waiting_runs = _waiting_runs(state, action)
    state.demand.count(info.base, action.spec.work, runs[0].plan.weights, waiting_runs, now_s)
    attempts.record_assignment(state, worker, action, attempt, now_s)
    billing.reserve(state, attempt)
    cache_salt = state.prefix_salt(cache_salt_scope(runs[0].scopes, action.key.scope))
    resume = checkpoints.resume(state, action, attempt, now_s)
    state.emit(
        Assign(
            worker.name,
            _assignment(action, attempt, runs, cache_salt, tenant, resume),
            action.spec.secrets,
            runs[0].plan.namespace,
            action.generation,
            action.read_scopes,
        )
    )


def _waiting_runs(state: State, action: Action) -> float:
    """How many runs an action keeps waiting: of each, its share in what the step waits for."""
    found = 0.0
    for subscriber in action.subscribers:
        run = state.runs.get(subscriber.uid)
        if run is not None:
            found += 1.0 / max(1, run.steps[subscriber.path].pending_parts)
    return found


def cache_salt_scope(scopes: ScopePlan, published_to: str) -> str:
    """Returns the scope whose salt separates prefix caches: the namespace's, unless shared."""
    return published_to if scopes.shares_prefixes else scopes.private


def _assignment(
    action: Action,
    attempt: Attempt,
    runs: list[Run],
    cache_salt: str,
    tenant: str,
    resume: InputRef | None,
) -> Assignment:
    spec = action.spec
    return Assignment(
        attempt_id=attempt.attempt_id,
        action_id=action.key.action_id,
        signature=attempt.info.signature,
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
        tensor_parallel=attempt.info.requirement.tensor_parallel,
        priority=ready_actions.priority(runs),
        timeout_s=spec.contract.max_timeout_s,
        isolate=action.isolate,
        cache_salt=cache_salt,
        run_uids=tuple(r.uid for r in runs),
        resume=resume,
        tenant=tenant,
    )


def _wait_reasons(state: State, decision: Decision, now_s: float) -> None:
    """Sets why steps wait; fails what no worker of a fixed fleet can ever run."""
    full = pending_publications.holds_back(state)
    any_waits = decision.rejections or full or state.held
    every_s = REASONS_EVERY_S * max(1.0, len(state.ready) / REASONS_AT_ONCE)
    if not any_waits or 0.0 <= now_s - state.reasons_told_s < every_s:
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
        if state.held and not ready_actions.may_start(state, action):
            _show_holds(state, action)
            continue
        found = reasons.get(ready_actions.placement_key(state, action))
        if found is None:
            continue
        if found.cause is RejectionCause.TENANT:
            single_tenant.drain_idle(state, action, now_s)
        # A fixed fleet starts together, and what its first workers offer the others offer too.
        settled = found.cause is RejectionCause.VARIANT_UNSUPPORTED and now_s - newest_s > SETTLED_S
        ready_before_s = _INF if settled else now_s - patience_s
        if patience_s and found.cause in NEVER and _give_up(state, action, found, ready_before_s):
            continue
        _show_wait_reason(state, action, found.cause, found.detail)


def _give_up(state: State, action: Action, why: Rejection, ready_before_s: float) -> bool:
    """Ends the subscriptions that have waited long enough for what no worker can run.

    Only where no requirement of the action can be met; where another one can, it is shown next.
    Returns whether the action waits for nothing any more, or for another kind of worker.
    """
    others = [o for o in action.options if o is not action.info]
    if any(effective_requirement.placeable(state, o) for o in others):
        effective_requirement.show_next(state, action)
        return True
    shapes = [w.shape for w in state.workers.values()]
    failures = {}
    for subscriber, own in action.subscribers.items():
        if max(action.ready_s, own.ready_s) < ready_before_s:
            detail = why.detail
            if own.terms.info is not action.info:
                detail = unmet_remedy(own.terms.info.requirement, shapes) or detail
            failures[subscriber] = Failure(FailureKind.UNPLACEABLE, detail)
    if failures:
        actions.leave(state, action, failures)
    return not action.subscribers


def _show_wait_reason(state: State, action: Action, reason: str, detail: str) -> None:
    """Sets why an action waits, in the steps that wait for it."""
    for subscriber in action.subscribers:
        _show_reason_of(state, subscriber, reason, detail)


def _show_holds(state: State, action: Action) -> None:
    """Sets, in each step that waits for an action, why its own namespace is held."""
    for subscriber in action.subscribers:
        hold = state.held.get(state.runs[subscriber.uid].plan.namespace)
        if hold is not None:
            _show_reason_of(state, subscriber, hold.cause, hold.detail)


def _show_reason_of(state: State, subscriber: Subscriber, reason: str, detail: str) -> None:
    run = state.runs[subscriber.uid]
    step = run.steps[subscriber.path]
    if step.wait_detail != detail or step.wait_reason != reason:
        step.wait_reason, step.wait_detail = reason, detail
        state.changed(run)


_Reasons = dict[PlacementKey, Rejection]


def _reasons(rejections: Sequence[Rejection]) -> tuple[_Reasons, _Reasons]:
    """By kind of action, the reason for those in backoff, and for the others.

    A backoff is one action's own. Of several other reasons the one that may pass is taken, since an
    action must not fail for what stops another one.
    """
    pausing: _Reasons = {}
    others: _Reasons = {}
    for rejection in sorted(rejections, key=lambda r: (r.cause in NEVER, -r.count)):
        found = pausing if rejection.cause is RejectionCause.BACKOFF else others
        found.setdefault(rejection.key, rejection)
    return pausing, others
