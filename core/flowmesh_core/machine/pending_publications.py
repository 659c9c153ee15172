"""Answers to publications, and results that wait because the store is full.

A result that finds no space waits: its work is done, and space can be made. One refusal says that
the store is full, not that one result is too large: after it, all results whose publication is
under way count as waiting for space, whether or not they were tried.
"""

from dataclasses import replace

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import Failure
from flowmesh_core.machine import actions, attempts
from flowmesh_core.machine.events import ActionKey, PublishDelayed, Published, PublishFailed
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State

FULL_FOR_S = 60.0
"""Seconds that the store counts as full after it refused a publication for want of space.

Longer than any pause between two tries of the control plane, so that a full store stays known."""


def answered(state: State, event: Published | PublishFailed | PublishDelayed, now_s: float) -> None:
    """Applies an answer of the store; one that no attempt waits for changes nothing."""
    attempt = _attempt_of(state, event)
    if attempt is None:
        return  # a step-level result, or the attempt was given up
    match event:
        case Published():
            outcome = "adopted" if event.adopted else "published"
            attempts.published(state, attempt, event.result, now_s, outcome=outcome)
        case PublishFailed():
            attempts.publish_failed(state, attempt, event.failure, now_s)
        case PublishDelayed():
            state.store_full, state.store_full_s = event.failure, now_s
            _wait(state, attempt, event.failure, now_s)


def awaited(state: State, attempt_id: str) -> Attempt | None:
    """Returns the attempt where its result is being published, though its run may be cancelled."""
    attempt = state.attempts.get(attempt_id)
    return attempt if attempt is not None and attempt.end is not None else None


def _attempt_of(state: State, event: Published | PublishFailed | PublishDelayed) -> Attempt | None:
    if event.attempt_id:
        return awaited(state, event.attempt_id)
    if isinstance(event, Published):
        attempt = awaited(state, event.result.provenance.attempt_id)
        if attempt is not None:
            return attempt
    return _any_of(state, event.key)


def _any_of(state: State, key: ActionKey) -> Attempt | None:
    action = state.actions.get(key)
    if action is not None and action.publishing is not None:
        return action.publishing
    return next(
        (a for a in state.attempts.values() if a.end is not None and a.action.key == key), None
    )


def _wait(state: State, attempt: Attempt, failure: Failure, now_s: float) -> None:
    """Has a result wait for space; other attempts of its action would be of no use."""
    attempt.store_full_s = attempt.store_full_s or now_s
    attempt.action.last_failure = failure
    if attempt.action.state is ActionState.PUBLISHING:
        actions.cancel_attempts(state, attempt.action)
    for uid in attempt.action.runs():
        state.changed(state.runs[uid])


def time_passed(state: State, now_s: float) -> None:
    """Gives up the results that have waited for space for ``Settings.publish_patience_s``."""
    failure = state.store_full
    if failure is None:
        return
    if not 0.0 <= now_s - state.store_full_s < FULL_FOR_S:
        state.store_full = None
        for uid in {uid for a in _waiting(state) for uid in a.action.runs()}:
            state.changed(state.runs[uid])
        return
    for attempt in [a for a in state.attempts.values() if a.end is not None]:
        if not attempt.store_full_s:
            _wait(state, attempt, failure, now_s)
        waited_s = now_s - attempt.store_full_s
        if waited_s >= state.settings.publish_patience_s:
            message = f"{failure.message}; it was tried for {waited_s / 3600:.0f} h"
            given_up = replace(failure, message=message)
            attempts.publish_failed(state, attempt, given_up, now_s, for_good=True)


def _waiting(state: State) -> list[Attempt]:
    return [a for a in state.attempts.values() if a.store_full_s]


def holds_back(state: State) -> Failure | None:
    """Returns why nothing new may begin (too many results wait for space), or None."""
    failure = state.store_full
    if failure is None or len(_waiting(state)) <= state.settings.results_waiting_max:
        return None
    return failure
