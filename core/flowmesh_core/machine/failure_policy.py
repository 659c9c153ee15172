"""Decides what happens to an action whose attempt failed, by the kind of failure.

Called by ``attempts.failed``. ``docs/states.md`` has the same policy as a table.
"""

from collections.abc import Callable
from dataclasses import replace

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.identity.digest import is_digest
from flowmesh_core.machine import actions, checkpoints, repair
from flowmesh_core.machine.model import Action, Attempt, Worker
from flowmesh_core.machine.state import State

MEMORY_ATTEMPTS = 12
"""Each failure doubles the reservation or excludes a size of device, so more would not help."""


def after_failure(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Retries the action as its failure requires, or fails it for good."""
    attempt.action.last_failure = failure
    if attempt.action.spec.once and _may_have_called(attempt, failure):
        actions.fail(state, attempt.action, _not_repeatable(failure))
        return
    _POLICY.get(failure.kind, _retry)(state, worker, attempt, failure, now_s)


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
) -> None:
    actions.fail(state, attempt.action, failure)


def _return_to_ready(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Preemption, drain and the machine's own cancels do not count as failures."""
    actions.back_to_ready(state, attempt.action, now_s)


def _retry(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Engine and store errors: bounded, with backoff, and on another worker first."""
    action = attempt.action
    count = _count_failure(action, failure)
    if not failure.retryable or count >= action.spec.max_attempts:
        actions.fail(state, action, failure)
        return
    factor = state.settings.backoff_factor ** (count - 1)
    action.not_before_s = now_s + max(failure.retry_after_s, action.spec.backoff_s * factor)
    action.avoid_workers.add(attempt.worker)
    if count == action.spec.max_attempts - 1:
        checkpoints.doubt(action, attempt)
    actions.back_to_ready(state, action, now_s)


def _lost(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Lost workers and crashed hosts: suspects run alone; the third loss is poison.

    A host that crashes makes what it ran suspect. A worker is lost for many reasons, and isolating
    everything on it costs each action a load; so only the second lost worker makes an action
    suspect (ADR 18). ``retry.attempts`` counts failures of the work and its engine, and a loss is
    neither.
    """
    action = attempt.action
    if attempt.phase in ("running", "loading", "storing"):
        action.losses += 1
        action.lost_attempt = attempt.attempt_id
        crashed = failure.kind is FailureKind.HOST_CRASHED
        action.isolate = action.isolate or crashed or action.losses > 1
        action.avoid_workers.add(attempt.worker)
    if action.losses >= state.settings.poison_losses:
        poison = Failure(
            FailureKind.POISON,
            f"the action ended its engine host or worker {action.losses} times "
            f"(last: {failure.message})",
            "find the row that causes it in the log; raise resources.memory if it is memory",
            failure.detail,
        )
        actions.fail(state, action, poison)
        return
    if action.losses == state.settings.poison_losses - 1:
        checkpoints.doubt(action, attempt)
    actions.back_to_ready(state, action, now_s)


def _out_of_memory(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """First a smaller load, then a larger reservation, then a worker with more memory (ADR 4)."""
    action = attempt.action
    if worker is None:
        _retry(state, worker, attempt, failure, now_s)
        return
    signature = action.spec.info.signature
    beside = [a for a in worker.attempts.values() if a.action.spec.info.signature == signature]
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
            signature,
            worker.shape.device_class,
            reserved_mib=attempt.memory_mib,
            device_mib=worker.shape.device_memory_mib,
            alone=alone,
        )
    for other in beside:
        other.memory_shared = True
    count = _count_failure(action, failure)
    action.isolate = action.isolate or not unloaded
    largest = max(w.shape.device_memory_mib for w in state.workers.values())
    if alone and attempt.memory_mib >= largest:
        failure = replace(
            failure,
            message=f"{failure.message} (alone on the largest device there is, of {largest} MiB)",
            remedy="give the step less data at once, or add a worker with more memory",
        )
        actions.fail(state, action, failure)
        return
    if count > MEMORY_ATTEMPTS:
        actions.fail(state, action, failure)
        return
    actions.back_to_ready(state, action, now_s)


def _missing_blob(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """A lost input is reproduced by the steps that made it."""
    action = attempt.action
    action.repairs += 1
    # Digests become keys of the store and names of files, so nothing else may pass as one.
    digests = frozenset(filter(is_digest, failure.detail.split()))
    if action.repairs > state.settings.repairs or not digests:
        actions.fail(state, action, failure)
        return
    actions.back_to_ready(state, action, now_s)
    repair.inputs_lost(state, action, digests, failure, now_s)


Policy = Callable[[State, Worker | None, Attempt, Failure, float], None]

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


def _count_failure(action: Action, failure: Failure) -> int:
    """Counts a failure; returns how many of its kind the action has had."""
    count = action.failures[failure.kind] = action.failures.get(failure.kind, 0) + 1
    return count
