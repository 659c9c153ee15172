"""Decides what happens to an action whose attempt failed, by the kind of failure.

Called by ``attempts.failed``. ``docs/states.md`` has the same policy as a table.
"""

from collections.abc import Callable
from dataclasses import replace

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.identity.digest import is_digest
from flowmesh_core.machine import actions, checkpoints, repair, second_opinions, suspects
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.eligibility import eligible
from flowmesh_core.machine.model import Action, Attempt, FailedTries, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Subscription

MEMORY_ATTEMPTS = 12
"""Each failure doubles the reservation or excludes a size of device, so more would not help."""


FREE_TRIES = 20
"""Failed tries of an action in a day that the fabric pays for."""
_DAY_S = 86_400.0

Leaving = dict[Subscriber, Failure]
"""Whose subscriptions end, and as what."""


def after_failure(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Retries the action as its failure requires, for the subscriptions that have tries left.

    An attempt counts only for those that it is eligible for; the others stay.
    """
    action = attempt.action
    action.last_failure = failure
    if action.spec.once and _may_have_called(attempt, failure):
        actions.fail(state, action, _not_repeatable(failure))
        return
    leaving = _POLICY.get(failure.kind, _retry)(state, worker, attempt, failure, now_s)
    if leaving is None:
        return
    actions.leave(state, action, leaving)
    if not action.subscribers:
        return
    actions.back_to_ready(state, action, now_s)
    if failure.kind is FailureKind.MISSING_BLOB:
        repair.inputs_lost(state, action, _lost_digests(failure), failure, now_s)


def costs_them(state: State, action: Action, failure: Failure, now_s: float) -> bool:
    """Whether the runs pay for a failed try: the fabric has paid for many of the action."""
    if failure.kind in _POLICY or not state.failed_tries:
        return False
    _forget_tries(state, now_s)
    tries = state.failed_tries.get(action.key)
    return tries is not None and tries.count >= FREE_TRIES


def _forget_tries(state: State, now_s: float) -> None:
    """Forgets the tries of actions that failed first more than a day ago."""
    while state.failed_tries:
        oldest = next(iter(state.failed_tries))
        if now_s - state.failed_tries[oldest].since_s < _DAY_S:
            break
        del state.failed_tries[oldest]


def _count_try(state: State, action: Action, now_s: float) -> None:
    _forget_tries(state, now_s)
    state.failed_tries.setdefault(action.key, FailedTries(now_s)).count += 1


def _counted(attempt: Attempt) -> list[tuple[Subscriber, Subscription]]:
    """The subscriptions that an attempt counts for."""
    subscribers = attempt.action.subscribers
    return [(s, own) for s, own in subscribers.items() if eligible(attempt, own.terms)]


def _may_have_called(attempt: Attempt, failure: Failure) -> bool:
    """Whether an outside call may have been made; a lost worker cannot rule it out."""
    if attempt.end is not None:
        return attempt.end.failure is None or attempt.end.usage.run_s > 0
    return failure.kind is FailureKind.LOST or attempt.phase in ("running", "storing")


def _not_repeatable(failure: Failure) -> Failure:
    return replace(
        failure,
        message=f"{failure.message} (the call may have been made, so it is not repeated)",
        remedy="check whether it was made and submit again, or declare it idempotent",
    )


def _give_up(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving:
    """The work itself fails, as it would again, unless another worker is to be asked first."""
    leaving: Leaving = {}
    for subscriber, own in _counted(attempt):
        if second_opinions.needed(state, attempt, own, failure):
            own.second_opinion = True
            attempt.action.avoid_workers |= {attempt.worker}
            state.figures.second_opinions[attempt.pool] += 1
        else:
            leaving[subscriber] = failure
    return leaving


def _return_to_ready(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving:
    """Preemption, drain and the machine's own cancels do not count as failures."""
    return {}


def _retry(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving:
    """Engine and store errors: bounded for each step, with backoff, on another worker first.

    The action is tried while a step has tries left, after the shortest delay among those.
    """
    action = attempt.action
    _count_try(state, action, now_s)
    _count_failure(action.failures, failure)
    leaving: Leaving = {}
    delays, last_try = [], False
    for subscriber, own in _counted(attempt):
        count = _count_failure(own.failures, failure)
        if not failure.retryable or count >= own.terms.attempts:
            leaving[subscriber] = failure
            continue
        delays.append(own.terms.backoff_s * state.settings.backoff_factor ** (count - 1))
        last_try = last_try or count == own.terms.attempts - 1
    action.not_before_s = now_s + max(failure.retry_after_s, min(delays, default=0.0))
    action.avoid_workers |= {attempt.worker}
    if last_try:
        checkpoints.doubt(action, attempt)
    return leaving


def _lost(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving:
    """Lost workers and crashed hosts: suspects are halved; a step's third loss is poison.

    A host that crashes makes what it ran suspect. A worker is lost for many reasons, and running
    what was on it in hosts of their own costs loads; so only the second lost worker makes an action
    suspect (ADR 18). A loss is held against an action only where it was alone, or where its engine
    did not load. ``retry.attempts`` counts failures of the work and its engine, and a loss is
    neither.
    """
    action = attempt.action
    if attempt.phase not in ("running", "loading", "storing"):
        return {}
    action.losses += 1
    action.lost_attempt = attempt.attempt_id
    crashed = failure.kind is FailureKind.HOST_CRASHED
    unloaded = crashed and attempt.loading
    others = suspects.beside(worker, attempt, failure.kind)
    alone = attempt.alone or (attempt.next_group is None and not others)
    if not unloaded and (crashed or action.losses > 1):
        suspects.divide(state, attempt, others)
    action.avoid_workers |= {attempt.worker}
    counted = _counted(attempt)
    action.lost_for = tuple(subscriber for subscriber, _ in counted)
    leaving = _poisoned(state, counted, failure, alone=alone, unloaded=unloaded)
    if leaving and alone:
        suspects.found(state, action)
    if any(own.losses >= state.settings.poison_losses - 1 for _, own in counted):
        checkpoints.doubt(action, attempt)
    return leaving


def _poisoned(
    state: State,
    counted: list[tuple[Subscriber, Subscription]],
    failure: Failure,
    *,
    alone: bool,
    unloaded: bool,
) -> Leaving:
    """Counts a loss; returns for whom the action is poison from now on."""
    leaving: Leaving = {}
    for subscriber, own in counted:
        own.losses += 1
        own.failed_loads += unloaded
        count = own.losses if alone else own.failed_loads
        if count >= state.settings.poison_losses:
            leaving[subscriber] = Failure(
                FailureKind.POISON,
                f"the action ended its engine host or worker {own.losses} times "
                f"(last: {failure.message})",
                "find the row that causes it in the log; raise resources.memory if it is memory",
                failure.detail,
            )
    return leaving


def _out_of_memory(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving:
    """First a smaller load, then a larger reservation, then a worker with more memory (ADR 4)."""
    action = attempt.action
    if worker is None:
        return _retry(state, worker, attempt, failure, now_s)
    signature = attempt.info.signature
    beside = list(worker.by_signature.get(signature, {}).values())
    # ``alone`` is whether the failure shows what one action needs, and so what is learned:
    #
    #   isolated          its own host           raise the reservation, then exclude the device
    #   host still loads  nothing had run yet    the same: the engine itself is too large
    #   only one in host  no neighbours          the same
    #   neighbours        too much at once       halve the admitted load
    #
    # A host that is ended fails its whole batch: the first report halves the load and marks the
    # others as ``memory_shared``, so that they teach nothing. If each of them halved it, a batch of
    # six would leave 1/64 of the load; if each raised the reservation, the device would be excluded
    # for actions that fit. After that all but the loading case run isolated, so that the one that
    # is too large is found. tests/flowmesh_core/machine/test_out_of_memory.py has a test of each.
    unloaded = attempt.loading
    alone = action.isolate or unloaded or not (beside or attempt.memory_shared)
    if alone or not attempt.memory_shared:
        state.learned.out_of_memory(
            attempt.info.base,
            worker.shape.device_class,
            reserved_mib=attempt.memory_mib,
            device_mib=worker.shape.device_memory_mib,
            alone=alone,
            share=(1 + len(beside)) / max(1 + len(beside), attempt.info.capacity),
        )
    for other in beside:
        other.memory_shared = True
    _count_failure(action.failures, failure)
    action.isolate = action.isolate or not unloaded
    largest = max(w.shape.device_memory_mib for w in state.workers.values())
    final = alone and attempt.memory_mib >= largest
    if final:
        failure = replace(
            failure,
            message=f"{failure.message} (alone on the largest device there is, of {largest} MiB)",
            remedy="give the step less data at once, or add a worker with more memory",
        )
    counted = [(s, _count_failure(own.failures, failure)) for s, own in _counted(attempt)]
    return {s: failure for s, count in counted if final or count > MEMORY_ATTEMPTS}


def _missing_blob(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> Leaving | None:
    """A lost input is reproduced by the steps that made it."""
    action = attempt.action
    action.repairs += 1
    if action.repairs > state.settings.repairs or not _lost_digests(failure):
        actions.fail(state, action, failure)
        return None
    return {}


def _lost_digests(failure: Failure) -> frozenset[str]:
    # Digests become keys of the store and names of files, so nothing else may pass as one.
    return frozenset(filter(is_digest, failure.detail.split()))


Policy = Callable[[State, Worker | None, Attempt, Failure, float], Leaving | None]
"""Returns whose subscriptions end; None where the policy has ended the action itself."""

_POLICY: dict[FailureKind, Policy] = {
    FailureKind.BAD_INPUT: _give_up,
    FailureKind.USER_CODE: _give_up,
    FailureKind.TIMEOUT: _give_up,
    FailureKind.BUDGET: _give_up,
    FailureKind.DRAINED: _return_to_ready,
    FailureKind.PREEMPTED: _return_to_ready,
    FailureKind.CANCELLED: _return_to_ready,
    FailureKind.LOST: _lost,
    FailureKind.HOST_CRASHED: _lost,
    FailureKind.OUT_OF_MEMORY: _out_of_memory,
    FailureKind.MISSING_BLOB: _missing_blob,
}


def _count_failure(counts: dict[str, int], failure: Failure) -> int:
    """Counts a failure; returns how many of its kind there have been."""
    count = counts[failure.kind] = counts.get(failure.kind, 0) + 1
    return count
