"""Actions in flight: naming, merging, delivering, withdrawing.

A part of a step subscribes to an action; equal parts subscribe to the same one. This module never
changes a step's course itself: it marks the step with ``State.touch``.
"""

from collections.abc import Collection, Iterable, Mapping

from flowmesh_api.v1.enums import ActionState, StepState
from flowmesh_core.errors import Failure
from flowmesh_core.machine import (
    checkpoints,
    effective_requirement,
    ready_actions,
    suspects,
    timeouts,
)
from flowmesh_core.machine.action_spec import name_of, spec_of, terms_of
from flowmesh_core.machine.cache_scopes import scopes_of
from flowmesh_core.machine.commands import CancelAttempt, LookUp
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Run, StepRun, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.machine.terms import Subscription, Terms
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import AUDIT_SCOPE

_LOOKING_UP = ActionState.LOOKING_UP
_READY = ActionState.READY
_PUBLISHING = ActionState.PUBLISHING
_DONE = ActionState.DONE
_STEP_READY = StepState.READY
_STEP_RUNNING = StepState.RUNNING
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def subscribe(state: State, run: Run, step: StepRun, number: int, now_s: float) -> None:
    """Subscribes a part to its action, which is looked up first unless it is in flight."""
    part = step.parts[number]
    name = name_of(run, step, part.inputs)
    publish, lookup = scopes_of(run, step, part.inputs)
    terms = terms_of(state, run, step, part.inputs, lookup)
    subscriber = Subscriber(run.uid, step.plan.path, number)
    subscription = Subscription(terms, state.observed_s, now_s)
    for scope in dict.fromkeys((publish, *lookup)):
        action = state.actions.get(ActionKey(scope, name))
        if action is not None:
            part.key = action.key
            _join(state, run, action, subscriber, subscription, now_s)
            return
    key = ActionKey(publish, name)
    part.key = key
    spec = spec_of(run, step, part.inputs, terms)
    action = Action(key, spec, terms.info, run.scopes.readable)
    action.isolate = publish.startswith(AUDIT_SCOPE)
    action.avoid_workers = frozenset(step.plan.avoid_workers)
    action.options = (terms.info,)
    action.subscribers[subscriber] = subscription
    state.actions[key] = action
    checkpoints.begin(state, run, action, now_s)
    _look_up(state, run, action, terms)


def _join(
    state: State,
    run: Run,
    action: Action,
    subscriber: Subscriber,
    subscription: Subscription,
    now_s: float,
) -> None:
    """Subscribes a part to an action in flight.

    A result that those who wait do not accept, for its age or its pool's trust, may do for this
    one, so it is looked up again.
    """
    terms = subscription.terms
    action.subscribers[subscriber] = subscription
    effective_requirement.joined(state, action, terms)
    missed = terms.oldest_s >= action.missed_from_s and terms.min_trust >= action.missed_trust
    if action.state is _LOOKING_UP or not missed:
        _look_up(state, run, action, terms)
    else:
        subscription.answered = True
    ready_actions.mark_changed(state, action)
    checkpoints.begin(state, run, action, now_s)
    if action.attempts:
        timeouts.joined(action, subscription)
        started(state, action, now_s)


def _look_up(state: State, run: Run, action: Action, terms: Terms) -> None:
    """Emits a look-up, unless one for the same namespace asks the same.

    Look-ups take turns by namespace, so another namespace's turn may come late.
    """
    namespace = run.plan.namespace
    asked = action.questions.get(terms.question, ())
    if namespace not in asked:
        action.questions[terms.question] = (*asked, namespace)
        state.emit(LookUp(action.key, *terms.question, run.uid))


def reproduce(
    state: State,
    run: Run,
    step: StepRun,
    number: int,
    generation: int,
    now_s: float,
    *,
    avoid: str = "",
) -> None:
    """Reproduces a part, since a blob of its published result is lost.

    Args:
        state: the machine's.
        run: the part's, with its step and its number.
        step: see ``run``.
        number: see ``run``.
        generation: of the new result.
        now_s: seconds since the epoch.
        avoid: a worker to use only where there is no other; empty for none.
    """
    part = step.parts[number]
    part.result = None
    name = name_of(run, step, part.inputs)
    publish, lookup = scopes_of(run, step, part.inputs)
    key = ActionKey(publish, name)
    terms = terms_of(state, run, step, part.inputs, lookup)
    subscriber = Subscriber(run.uid, step.plan.path, number)
    action = state.actions.get(key)
    if action is None:
        spec = spec_of(run, step, part.inputs, terms)
        action = Action(key, spec, terms.info, run.scopes.readable)
        action.options = (terms.info,)
        state.actions[key] = action
        if avoid:
            action.avoid_workers |= {avoid}
        enqueue(state, action, now_s)
    part.key = key
    action.replace = True
    action.generation = max(action.generation, generation)
    subscription = Subscription(terms, state.observed_s, now_s, answered=True)
    action.subscribers[subscriber] = subscription
    effective_requirement.joined(state, action, terms)
    timeouts.joined(action, subscription)
    ready_actions.mark_changed(state, action)


def enqueue(state: State, action: Action, now_s: float) -> None:
    """Puts an action into the ready set."""
    action.move(_READY)
    action.ready_s = action.ready_s or now_s
    for run in action.runs():
        state.runs[run].has_executed = True
    ready_actions.enter(state, action)


def deliver(
    state: State,
    action: Action,
    result: ActionResult,
    subscribers: Collection[Subscriber],
    found_in: str = "",
) -> None:
    """Gives a published result to these subscribers; without any left the action is forgotten.

    Args:
        state: the machine's.
        action: whose result it is.
        result: published by the action, or found by a look-up.
        subscribers: of the action, at least one.
        found_in: the scope that has it, where that is another than the action's.
    """
    last = next(iter(subscribers))
    for subscriber in subscribers:
        subscription = action.subscribers.pop(subscriber)
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        part = step.parts.get(subscriber.part)
        if part is not None and part.result is None:
            part.result = result
            if found_in:
                part.key = ActionKey(found_in, action.key.action_id)
            run.inline.update(result.inline)
            step.pending_parts -= 1
            step.fresh = (*step.fresh, subscriber.part)
            state.touch(run, subscriber.path)
        effective_requirement.left(state, action, subscription.terms)
        last = subscriber
    if action.subscribers:
        ready_actions.mark_changed(state, action)
    elif action.state in (_LOOKING_UP, _PUBLISHING):
        action.move(_DONE)
        _forget(state, action)
    else:
        _withdraw(state, action, last)


def fail(state: State, action: Action, failure: Failure) -> None:
    """Fails an action for good: every subscribed step fails with this failure."""
    action.move(ActionState.FAILED)
    for subscriber in action.subscribers:
        _fail_step(state, subscriber, failure)
    cancel_attempts(state, action)
    _forget(state, action)


def leave(state: State, action: Action, failures: Mapping[Subscriber, Failure]) -> None:
    """Ends subscriptions, each with its own failure; the others go on.

    Those that leave pay nothing while others stay. Without any left the action fails, and the last
    ones pay for the attempts that still run.
    """
    for subscriber, failure in failures.items():
        subscription = action.subscribers.pop(subscriber, None)
        if subscription is not None:
            _fail_step(state, subscriber, failure)
            effective_requirement.left(state, action, subscription.terms)
    if action.subscribers:
        ready_actions.mark_changed(state, action)
        return
    action.move(ActionState.FAILED)
    _end_attempts(state, action, failures)


def _fail_step(state: State, subscriber: Subscriber, failure: Failure) -> None:
    run = state.runs[subscriber.uid]
    step = run.steps[subscriber.path]
    if not step.ended and step.failure is None:
        step.failure = failure
        state.touch(run, subscriber.path)


def unsubscribe(state: State, run: Run, step: StepRun) -> None:
    """Removes a step from all its actions; an action without subscribers is withdrawn.

    Its step-level look-up is no longer awaited either: a later request for the same emits a new
    one.
    """
    waiting = state.step_lookups.get(step.lookup) if step.lookup is not None else None
    if step.lookup is not None and waiting is not None:
        waiting.steps.pop((run.uid, step.plan.path), None)
        if not waiting.steps:
            del state.step_lookups[step.lookup]
    for number, part in step.parts.items():
        if part.key is None or part.result is not None:
            continue
        action = state.actions.get(part.key)
        if action is None:
            continue
        subscriber = Subscriber(run.uid, step.plan.path, number)
        subscription = action.subscribers.pop(subscriber, None)
        if subscription is None:
            continue
        effective_requirement.left(state, action, subscription.terms)
        ready_actions.mark_changed(state, action)
        if not action.subscribers:
            _withdraw(state, action, subscriber)


def leave_unpaid(state: State, action: Action, subscriber: Subscriber) -> None:
    """Ends a subscription; where it was the last one, the fabric pays for what still runs."""
    subscription = action.subscribers.pop(subscriber, None)
    if subscription is None:
        return
    effective_requirement.left(state, action, subscription.terms)
    ready_actions.mark_changed(state, action)
    if not action.subscribers:
        action.move(ActionState.WITHDRAWN)
        _end_attempts(state, action, ())


def _withdraw(state: State, action: Action, last: Subscriber) -> None:
    action.move(ActionState.WITHDRAWN)
    _end_attempts(state, action, (last,))


def _end_attempts(state: State, action: Action, payers: Iterable[Subscriber]) -> None:
    """Cancels the attempts of an action without subscribers; these pay, one part a run."""
    steps = {s.uid: (s.path, s.part) for s in payers}
    for attempt in action.attempts.values():
        attempt.payers, attempt.payer_steps = tuple(steps), dict(steps)
        for uid in steps:
            state.runs[uid].unsettled[attempt.attempt_id] = None
    cancel_attempts(state, action)
    _forget(state, action)


def cancel_attempts(state: State, action: Action) -> None:
    """Cancels the attempts of an action that have not ended."""
    for attempt in action.attempts.values():
        if attempt.end is None and not attempt.cancelled:
            attempt.cancelled = True
            state.emit(CancelAttempt(attempt.worker, attempt.attempt_id))


def _forget(state: State, action: Action) -> None:
    # Its attempts may still run on workers that the cancel has not reached, longer than its runs.
    action.subscribers.clear()
    # The attempt refers to the action in turn, and only the garbage collector could free a cycle.
    action.publishing = None
    ready_actions.leave(state, action)
    suspects.leave(state, action)
    state.unnoted.pop(action.key, None)
    if state.actions.get(action.key) is action:
        del state.actions[action.key]
    state.dirty = True


def started(state: State, action: Action, now_s: float) -> None:
    """Moves the subscribed steps to RUNNING."""
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if step.state is _STEP_READY:
            run.move(step, _STEP_RUNNING, now_s)
            state.changed(run)


def back_to_ready(state: State, action: Action, now_s: float) -> None:
    """Returns an action to the ready set after a failure; single-part steps become READY again."""
    action.move(_READY)
    ready_actions.enter(state, action)
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if step.state is _STEP_RUNNING and step.total == 1:
            run.move(step, _STEP_READY, now_s, "lost or to be retried")
        state.changed(run)
