"""Timeouts of subscriptions to running attempts, each with its own clock.

The worker enforces only the longest timeout that the engine allows, since an attempt may serve
several steps. The machine ends a subscription whose own timeout has passed; the attempt goes on
while another one wants it. Clocks count what the machine has observed (``State.observed_s``).
"""

from flowmesh_core.catalog.timeouts import duration
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine.eligibility import eligible
from flowmesh_core.machine.model import Action, Attempt, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Subscription

_NEVER = float("inf")


def begin(state: State, attempt: Attempt) -> None:
    """Starts the clocks of an attempt that has begun to run."""
    attempt.begun_s = state.observed_s
    attempt.times_out_s = _first(attempt)


def joined(action: Action, subscription: Subscription) -> None:
    """Starts the clock of a new subscription on the attempts that run."""
    for attempt in action.attempts.values():
        if attempt.phase == "running":
            attempt.times_out_s = min(attempt.times_out_s, _ends_s(attempt, subscription))


def expired(state: State) -> list[tuple[Action, dict[Subscriber, Failure]]]:
    """Returns the subscriptions whose timeouts have passed, by action."""
    found = []
    for attempt in state.attempts.values():
        if attempt.times_out_s > state.observed_s:
            continue
        attempt.times_out_s = _NEVER
        if attempt.phase != "running" or attempt.end is not None or attempt.cancelled:
            continue  # storing counts against no timeout
        attempt.times_out_s = _first(attempt, after_s=state.observed_s)
        over = {
            subscriber: _failure(attempt, subscription)
            for subscriber, subscription in attempt.action.subscribers.items()
            if _is_over(state, attempt.action, subscription)
        }
        if over:
            found.append((attempt.action, over))
    return found


def _is_over(state: State, action: Action, subscription: Subscription) -> bool:
    """Whether no attempt that counts for the subscription has time left; a replica may have."""
    counting = [a for a in action.attempts.values() if eligible(a, subscription.terms)]
    ends = [_ends_s(a, subscription) if a.phase == "running" else _NEVER for a in counting]
    return bool(ends) and max(ends) <= state.observed_s


def _first(attempt: Attempt, after_s: float = 0.0) -> float:
    first_s = _NEVER
    for subscription in attempt.action.subscribers.values():
        ends_s = _ends_s(attempt, subscription)
        if after_s < ends_s < first_s:
            first_s = ends_s
    return first_s


def _ends_s(attempt: Attempt, subscription: Subscription) -> float:
    timeout_s = subscription.terms.timeout_s
    return max(attempt.begun_s, subscription.since_s) + timeout_s if timeout_s else _NEVER


def _failure(attempt: Attempt, subscription: Subscription) -> Failure:
    terms = subscription.terms
    engine = attempt.action.spec.contract.name
    limit = (
        f"your step's timeout of {terms.timeout_s:g} s"
        if terms.own_timeout
        else f"the default timeout of {engine}, {duration(terms.timeout_s)}"
    )
    return Failure(
        FailureKind.TIMEOUT,
        f"the attempt ran longer than {limit}",
        "raise the step's timeout, or give the step less to do",
    )
