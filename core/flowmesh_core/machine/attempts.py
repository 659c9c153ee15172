"""The end of an attempt: publication, retry, or failure.

An action runs at least once and is published at most once: the first reported success is published;
any later success of the same action is settled at the fabric's expense.
"""

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine import (
    actions,
    billing,
    budgets,
    cache_hits,
    checkpoints,
    disclosure,
    failure_policy,
    learning,
    ready_actions,
    result_ttl,
    second_opinions,
    suspects,
    timeouts,
)
from flowmesh_core.machine.attempt_trust import NO_TRUST, trust_of
from flowmesh_core.machine.commands import Acknowledge, CancelAttempt, Publish
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.eligibility import eligible
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Attempt, Subscriber
from flowmesh_core.machine.orphans import OrphanedEnd
from flowmesh_core.machine.output_checks import misfit
from flowmesh_core.machine.state import State, parse_attempt_id
from flowmesh_core.placement.constraints import unmet
from flowmesh_core.protocol.messages import AttemptEnd, FailureReport
from flowmesh_core.protocol.results import ActionResult, Bill, Provenance
from flowmesh_core.sharing.scopes import AUDIT_SCOPE

THEIRS = frozenset({FailureKind.BAD_INPUT, FailureKind.USER_CODE, FailureKind.TIMEOUT})
"""Failures that the step itself causes: its runs pay for the attempt."""


_RUNNING = ActionState.RUNNING
_PUBLISHING = ActionState.PUBLISHING
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def ended(
    state: State, worker: Worker, end: AttemptEnd, generation: int | None, now_s: float
) -> None:
    """Applies a worker's report of an attempt's end; a repeated report changes nothing.

    Args:
        state: the machine's.
        worker: the reporter, which was given the attempt.
        end: the report.
        generation: that the attempt was made for; None where it was never sent.
        now_s: the time.
    """
    worker.count_busy(now_s)
    attempt = worker.remove(end.attempt_id)
    if attempt is None:
        _unknown(state, worker, end, generation, now_s)
        return
    state.dirty = True
    attempt.end = end
    action = attempt.action
    if not attempt.logged:
        _log(state, action, end)
    if attempt.adopted or attempt.unobserved_nanousd:
        billing.charge_unobserved(state, worker, attempt)
    failure = misfit(action.spec, end.outputs) if end.failure is None else _reported(end.failure)
    if failure is None:
        _succeeded(state, worker, attempt, now_s)
        return
    state.emit(Acknowledge(worker.name, end.attempt_id))
    failed(state, worker, attempt, failure, now_s)


def _reported(report: FailureReport) -> Failure:
    return Failure(
        kind=FailureKind(report.kind),
        message=report.message,
        remedy=report.remedy,
        detail=report.detail,
        retry_after_s=report.retry_after_s,
        reason=report.reason,
    )


def _unknown(
    state: State, worker: Worker, end: AttemptEnd, generation: int | None, now_s: float
) -> None:
    if end.attempt_id in state.attempts:
        return  # its publication is under way; the acknowledgement follows
    key = parse_attempt_id(end.attempt_id)
    running = state.orphaned_attempts.get(key)
    if running is not None and (running.worker, running.attempt_id) == (
        worker.name,
        end.attempt_id,
    ):
        del state.orphaned_attempts[key]  # it runs no more, so the action needs a new attempt
    action = state.actions.get(key)
    wanted = now_s < state.recovering_until_s or action is not None
    if (
        end.failure is None
        and wanted
        and generation is not None
        and state.orphaned_ends.add(key, OrphanedEnd(worker.name, end, generation))
    ):
        return
    state.emit(Acknowledge(worker.name, end.attempt_id))


def adopt_orphans(state: State, now_s: float) -> None:
    """Adopts attempts of earlier epochs, ended or still running, for the actions that want them.

    After a restart, workers report what they finished and run before the runs are restored, so both
    are kept as orphans, by action, until their action is known and its look-up has found nothing.
    """
    # Only a READY action adopts. While it is LOOKING_UP, its result may be in the store already,
    # published by the earlier epoch, and an adopted attempt would publish it a second time. Ended
    # attempts come before running ones: an end moves its action to PUBLISHING, so a second attempt
    # that still runs is not adopted, and is cancelled when the action is done. To cancel all
    # orphans and start over would be simpler, but a restart would cost hours of running work:
    # test_after_a_restart_finished_and_running_attempts_are_adopted_and_not_repeated.
    for key in [k for k, _ in state.orphaned_ends.items() if _wants(state, k)]:
        found = state.orphaned_ends.pop(key)
        worker, end, action = state.workers.get(found.worker), found.end, state.actions[key]
        if worker is None or end.attempt_id in state.attempts:
            continue
        if may_adopt(action, worker, end.attempt_id, found.generation):
            adopt(state, worker, action, end.attempt_id, now_s)
            ended(state, worker, end, found.generation, now_s)
        else:
            state.emit(Acknowledge(worker.name, end.attempt_id))
    for key in [k for k in state.orphaned_attempts if _wants(state, k)]:
        orphan = state.orphaned_attempts.pop(key)
        worker, action = state.workers.get(orphan.worker), state.actions[key]
        if worker is None or orphan.attempt_id in state.attempts:
            continue
        if may_adopt(action, worker, orphan.attempt_id, orphan.generation):
            adopt(state, worker, action, orphan.attempt_id, now_s)
        else:
            state.emit(CancelAttempt(worker.name, orphan.attempt_id))
    if now_s >= state.recovering_until_s:
        for key in [k for k, _ in state.orphaned_ends.items() if k not in state.actions]:
            left = state.orphaned_ends.pop(key)
            state.emit(Acknowledge(left.worker, left.end.attempt_id))
        for key in [k for k in state.orphaned_attempts if k not in state.actions]:
            orphan = state.orphaned_attempts.pop(key)
            state.emit(CancelAttempt(orphan.worker, orphan.attempt_id))


def _wants(state: State, key: ActionKey) -> bool:
    action = state.actions.get(key)
    return action is not None and action.state is ActionState.READY


def may_adopt(action: Action, worker: Worker, attempt_id: str, generation: int | None) -> bool:
    """Whether an action may go on with an attempt that its worker was given earlier.

    Not where the result would be of another generation, where the worker could not be given the
    action now, or where the attempt's end was reported already: it is over.
    """
    return (
        generation == action.generation
        and attempt_id not in action.reported
        and _requirement_met(action, worker) is not None
    )


def _requirement_met(action: Action, worker: Worker) -> SignatureInfo | None:
    """Returns the first of an action's least requirements that a worker meets."""
    met = (o for o in action.options if unmet(o.requirement, worker.shape) is None)
    return next(met, None)


def adopt(state: State, worker: Worker, action: Action, attempt_id: str, now_s: float) -> Attempt:
    """Adopts an attempt that a worker already runs, as after a restart."""
    attempt = Attempt(
        attempt_id=attempt_id,
        action=action,
        worker=worker.name,
        incarnation=worker.incarnation,
        assigned_s=now_s,
        predicted_s=0.0,
        reserve_nanousd=0,
        info=_requirement_met(action, worker) or action.info,
        shape=worker.shape,
        phase="running",
        pool=worker.shape.pool,
        code_tenant=ready_actions.code_tenant(state, action),
        tenant=ready_actions.sole_tenant(state, action),
    )
    if action.checkpoint is not None:  # it may have begun there
        attempt.resumed_trust = action.checkpoint.trust
    billing.resume(state, attempt)
    record_assignment(state, worker, action, attempt, now_s)
    timeouts.begin(state, attempt)
    return attempt


def record_assignment(
    state: State, worker: Worker, action: Action, attempt: Attempt, now_s: float
) -> None:
    """Records an attempt as assigned to a worker."""
    action.attempts[attempt.attempt_id] = attempt
    action.move(_RUNNING)
    ready_actions.leave(state, action)
    state.attempts[attempt.attempt_id] = attempt
    worker.add(attempt)
    actions.started(state, action, now_s)


def _log(state: State, action: Action, end: AttemptEnd) -> None:
    if not end.log:
        return
    for subscriber in action.subscribers:
        step = state.runs[subscriber.uid].steps[subscriber.path]
        step.add_log(end.log.splitlines())


def _succeeded(state: State, worker: Worker, attempt: Attempt, now_s: float) -> None:
    action, end = attempt.action, attempt.end
    assert end is not None
    learning.attempt_succeeded(state, worker, attempt, end, now_s)
    for artifact in end.outputs.values():
        if artifact.size_bytes > NEGLIGIBLE_BYTES:
            worker.local_digests[artifact.digest] = None
    if action.state is not _RUNNING:
        state.emit(Acknowledge(worker.name, attempt.attempt_id))
        if action.state is not _PUBLISHING:
            billing.settle(state, attempt, payers_after_cancel(attempt), "cancelled", now_s)
        else:
            billing.settle(state, attempt, [], "replica", now_s)
        return
    trust = trust_of(state, worker, attempt)
    accepting = [s.terms for s in action.subscribers.values() if s.terms.accepts(trust)]
    if not accepting:
        _discard(state, attempt, trust, now_s)
        return
    action.move(_PUBLISHING)
    action.publishing = attempt
    result = _result(state, worker, attempt, end, trust, now_s)
    if action.key.scope.startswith(AUDIT_SCOPE):
        # Audited results are compared and never stored, so no look-up can find them.
        published(state, attempt, result, now_s, outcome="audited")
    else:
        _, oldest_s, min_trust = accepting[0].question
        for terms in accepting[1:]:
            oldest_s, min_trust = max(oldest_s, terms.oldest_s), max(min_trust, terms.min_trust)
        state.emit(Publish(action.key, result, action.replace, oldest_s, min_trust))


def _discard(state: State, attempt: Attempt, trust: int, now_s: float) -> None:
    """Discards a result that no subscriber accepts, since all ask for more trust.

    Those that accepted it have left while the attempt ran, or its pool is trusted less now.
    """
    action = attempt.action
    state.emit(Acknowledge(attempt.worker, attempt.attempt_id))
    state.figures.untrusted_results[attempt.pool] += 1
    action.reported += (attempt.attempt_id,)
    message = f"its pool has trust {trust}, and those that wait for the result ask for more"
    if trust == NO_TRUST:
        message = "other workers did not repeat a result of its worker, which is believed no more"
    billing.settle(state, attempt, [], "untrusted", now_s, message)
    if not action.attempts:
        actions.back_to_ready(state, action, now_s)


def _result(
    state: State, worker: Worker, attempt: Attempt, end: AttemptEnd, trust: int, now_s: float
) -> ActionResult:
    action = attempt.action
    spec = action.spec
    uid = action.first_run()
    return ActionResult(
        action_id=action.key.action_id,
        generation=action.generation,
        engine=spec.contract.name,
        contract=spec.contract.version,
        implementation=spec.contract.implementation,
        inputs={port: a.digest for port, a in spec.inputs.items()},
        outputs=end.outputs,
        params=spec.params,
        fields=spec.fields,
        inline=end.inline,
        usage=end.usage,
        bill=Bill(attempt.charged_nanousd, end.usage.joules, end.usage.joules_estimated),
        provenance=Provenance(
            worker=worker.name,
            pool=worker.shape.pool,
            device_class=worker.shape.device_class,
            attempt_id=attempt.attempt_id,
            libraries=end.libraries,
            started_s=end.started_s,
            ended_s=end.ended_s,
            trust=trust,
        ),
        created_s=now_s,
        expires_s=result_ttl.expires_s(state, action.runs(), now_s),
        run_uid=uid,
        namespace=state.runs[uid].plan.namespace if uid else "",
    )


def published(
    state: State, attempt: Attempt, result: ActionResult, now_s: float, *, outcome: str
) -> None:
    """Settles the attempt of a published result and completes the subscribers that accept it.

    For those that ask for more trust the action goes on, and its next result replaces this one.

    Args:
        state: the machine's.
        attempt: whose result was to be published.
        result: the one that is in the store now.
        now_s: the time.
        outcome: ``published``, ``adopted``, or ``audited`` for a result that is not stored.
    """
    action, trust = attempt.action, result.provenance.trust
    state.emit(Acknowledge(attempt.worker, attempt.attempt_id))
    if action.publishing is attempt:
        suspects.waive(state, attempt)
        budgets.joined_late(state, attempt, trust)
    subscribers = [s for s, own in action.subscribers.items() if own.terms.accepts(trust)]
    shares = billing.settle(
        state, attempt, subscribers or payers_after_cancel(attempt), outcome, now_s
    )
    if action.publishing is not attempt:
        # The last subscriber left while the result was being published: the action is WITHDRAWN
        # and forgotten, and a new one of the same key may be in flight. The worker still needs its
        # acknowledgement and the attempt its payer, since the run that left cannot end while the
        # attempt is unsettled; so both come before this return. Nothing is delivered: steps of that
        # run are cancelled, and a new action finds the result by its own look-up. To settle at the
        # withdrawal instead would leave out the cost up to the end, and the bill would not add up.
        # test_a_published_result_settles_its_own_attempt.
        return
    first = subscribers[0].uid if subscribers else ""
    sharers = tuple(dict.fromkeys(s.uid for s in subscribers))
    for s in subscribers:
        run = state.runs[s.uid]
        step = run.steps[s.path]
        others: tuple[str, ...] = ()
        if len(sharers) > 1:
            others = disclosure.named(state, run, (u for u in sharers if u != s.uid))
            step.shared_with.update(dict.fromkeys(others))
        if s is not subscribers[0]:
            paid = shares.get(s.uid, 0) if s.uid != first else 0
            joules = result.bill.joules / len(sharers) if s.uid != first else 0.0
            cache_hits.merged(
                state,
                run,
                step,
                s,
                result,
                share_nanousd=paid,
                share_joules=joules,
                sharers=others,
                now_s=now_s,
            )
    if len(subscribers) == len(action.subscribers):
        actions.cancel_attempts(state, action)
    if subscribers:
        actions.deliver(state, action, result, subscribers)
    if action.subscribers:
        _go_on(state, action, result, now_s)


def _go_on(state: State, action: Action, result: ActionResult, now_s: float) -> None:
    """Has an action run for the subscribers that did not accept the published result."""
    action.publishing = None
    action.replace = True
    action.generation = max(action.generation, result.generation + 1)
    action.move(_RUNNING)
    if not action.attempts:
        actions.back_to_ready(state, action, now_s)


def publish_failed(
    state: State, attempt: Attempt, failure: Failure, now_s: float, *, for_good: bool = False
) -> None:
    """Applies a refusal by the store: the action is retried, or fails."""
    state.emit(Acknowledge(attempt.worker, attempt.attempt_id))
    worker = state.workers.get(attempt.worker)
    action = attempt.action
    if action.publishing is attempt:
        action.publishing = None
        action.move(_RUNNING)
    failed(state, worker, attempt, failure, now_s, for_good=for_good)


def payers_after_cancel(attempt: Attempt) -> list[Subscriber]:
    """Returns the subscribers that pay for an attempt after its action's last one has left."""
    return [Subscriber(uid, *attempt.payer_steps[uid]) for uid in attempt.payers]


def failed(
    state: State,
    worker: Worker | None,
    attempt: Attempt,
    failure: Failure,
    now_s: float,
    *,
    for_good: bool = False,
) -> None:
    """Settles a failed attempt and decides what happens to its action.

    Args:
        state: of the machine.
        worker: that ran it; None where it has left.
        attempt: that failed.
        failure: of the attempt.
        now_s: the time.
        for_good: fails the action whatever its failure's policy is.
    """
    action = attempt.action
    alive = action.state in (_RUNNING, _PUBLISHING)
    if attempt.payers:
        payers = payers_after_cancel(attempt)
    elif alive and (
        failure.kind in THEIRS or failure_policy.costs_them(state, action, failure, now_s)
    ):
        payers = [
            s
            for s, own in action.subscribers.items()
            if eligible(attempt, own.terms)
            and not second_opinions.needed(state, attempt, own, failure)
        ]
    else:
        payers = []
    _count_attempt(state, action)
    if attempt.end is not None:
        action.reported += (attempt.attempt_id,)
    billing.settle(state, attempt, payers, failure.kind, now_s, failure.message)
    if action.state is not _RUNNING or (action.attempts and not for_good):
        return
    checkpoints.note(state, action, now_s)
    if for_good:
        actions.fail(state, action, failure)
    else:
        failure_policy.after_failure(state, worker, attempt, failure, now_s)


def _count_attempt(state: State, action: Action) -> None:
    for s in action.subscribers:
        state.runs[s.uid].steps[s.path].attempts += 1
