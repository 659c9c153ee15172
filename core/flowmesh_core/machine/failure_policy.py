"""What becomes of an action whose attempt failed, by the kind of failure (``docs/states.md``)."""

from collections.abc import Callable
from dataclasses import replace

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.identity.digest import is_digest
from flowmesh_core.machine import actions, checkpoints, repair
from flowmesh_core.machine.model import Action, Attempt, Worker
from flowmesh_core.machine.state import State

MEMORY_ATTEMPTS = 12
"""Each doubles the reservation or excludes a size of device, so more would not help."""


def after_failure(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Tries the action again in the way that its failure asks for, or fails it for good."""
    attempt.action.last_failure = failure
    if attempt.action.spec.once and _may_have_called(attempt, failure):
        actions.fail(state, attempt.action, _not_again(failure))
        return
    _POLICY.get(failure.kind, _retry)(state, worker, attempt, failure, now_s)


def _may_have_called(attempt: Attempt, failure: Failure) -> bool:
    """Whether an outside call may have been made; a worker that is gone cannot deny it."""
    if attempt.end is not None:
        return attempt.end.failure is None or attempt.end.usage.run_s > 0
    return failure.kind is FailureKind.LOST or attempt.phase in ("running", "storing")


def _not_again(failure: Failure) -> Failure:
    return replace(
        failure,
        message=f"{failure.message} (the call may have been made, so it is not made again)",
        remedy="see whether it was made, then submit again, or declare it idempotent",
    )


def _give_up(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    actions.fail(state, attempt.action, failure)


def _again(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Preemption, drain and our own cancels count for nothing."""
    actions.back_to_ready(state, attempt.action, now_s)


def _retry(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Engine and store errors: bounded, with backoff, another worker first."""
    action = attempt.action
    count = _failed_so_often(action, failure)
    if not failure.retryable or count >= action.spec.max_attempts:
        actions.fail(state, action, failure)
        return
    factor = state.settings.backoff_factor ** (count - 1)
    action.not_before_s = now_s + max(failure.retry_after_s, action.spec.backoff_s * factor)
    action.avoid.add(attempt.worker)
    if count == action.spec.max_attempts - 1:
        checkpoints.doubt(action, attempt)
    actions.back_to_ready(state, action, now_s)


def _lost(
    state: State, worker: Worker | None, attempt: Attempt, failure: Failure, now_s: float
) -> None:
    """Lost workers and crashed hosts: suspects run alone; the third loss is poison.

    A host that crashed makes suspects of what it ran. A worker has many reasons to be lost, and a
    place of their own costs everything on it a load: only whoever loses a second one is suspect.
    ``retry.attempts`` counts failures of the work and its engine; a loss is neither.
    """
    action = attempt.action
    if attempt.phase in ("running", "loading", "storing"):
        action.losses += 1
        action.lost = attempt.attempt_id
        crashed = failure.kind is FailureKind.HOST_CRASHED
        action.isolate = action.isolate or crashed or action.losses > 1
        action.avoid.add(attempt.worker)
    if action.losses >= state.settings.poison_losses:
        poison = Failure(
            FailureKind.POISON,
            f"the action ended its engine host or worker {action.losses} times "
            f"(last: {failure.message})",
            "look at the log for the row that does it; raise resources.memory if it is memory",
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
    """First less at once, then a larger reservation, then a worker with more memory."""
    action = attempt.action
    if worker is None:
        _retry(state, worker, attempt, failure, now_s)
        return
    signature = action.spec.info.signature
    beside = [a for a in worker.held.values() if a.action.spec.info.signature == signature]
    # Before anything ran the load was nothing, however many waited: the engine itself is too large.
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
    for other in beside:  # of a host that was ended they fail next, for the same want of memory
        other.memory_shared = True
    count = _failed_so_often(action, failure)
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
    """A lost input is made again by the steps that gave it."""
    action = attempt.action
    action.repairs += 1
    # Digests become keys of the store and names of files: nothing else may pass for one.
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
    FailureKind.DRAINED: _again,
    FailureKind.PREEMPTED: _again,
    FailureKind.CANCELLED: _again,
    FailureKind.LOST: _lost,
    FailureKind.HOST_CRASHED: _lost,
    FailureKind.OUT_OF_MEMORY: _out_of_memory,
    FailureKind.MISSING_BLOB: _missing_blob,
}


def _failed_so_often(action: Action, failure: Failure) -> int:
    """Counts a failure; how many of its kind the action has had."""
    count = action.failures[failure.kind] = action.failures.get(failure.kind, 0) + 1
    return count
