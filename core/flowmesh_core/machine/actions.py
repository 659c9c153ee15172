"""Actions in flight: naming, merging, delivering, withdrawing.

A part of a step subscribes to an action; equal parts subscribe to the same one. This module never
changes a step's course itself: it marks the step with ``State.touch``.
"""

from flowmesh_api.v1.enums import ActionState, StepState
from flowmesh_core.errors import Failure
from flowmesh_core.machine import checkpoints, ready_actions
from flowmesh_core.machine.action_spec import name_of, spec_of
from flowmesh_core.machine.cache_scopes import scopes_of
from flowmesh_core.machine.commands import CancelAttempt, LookUp
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, PendingLookUp, Run, StepRun, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.sharing.scopes import AUDIT_SCOPE


def subscribe(state: State, run: Run, step: StepRun, number: int, now_s: float) -> None:
    """Subscribes a part to its action, which is looked up first unless it is in flight."""
    part = step.parts[number]
    name = name_of(run, step, part.inputs)
    publish, lookup = scopes_of(run, step, part.inputs)
    subscriber = Subscriber(run.uid, step.plan.path, number)
    for scope in dict.fromkeys((publish, *lookup)):
        action = state.actions.get(ActionKey(scope, name))
        if action is not None:
            part.key = action.key
            action.subscribers[subscriber] = None
            if action.state is ActionState.LOOKING_UP and action.look_up is not None:
                further = action.look_up.asked_by(run)
                if further is not None:
                    state.emit(further)
            ready_actions.mark_changed(state, action)
            checkpoints.begin(state, run, action, now_s)
            if action.attempts:
                started(state, action, now_s)
            return
    key = ActionKey(publish, name)
    part.key = key
    action = Action(key, spec_of(state, run, step, part.inputs, publish), lookup)
    action.isolate = publish.startswith(AUDIT_SCOPE)
    action.subscribers[subscriber] = None
    state.actions[key] = action
    checkpoints.begin(state, run, action, now_s)
    max_age_s = step.plan.cache.max_age_s
    oldest_s = run.created_s - max_age_s if max_age_s else 0.0
    command = LookUp(key, lookup, oldest_s, run.uid)
    action.look_up = PendingLookUp(command, (run.plan.namespace,))
    state.emit(command)


def reproduce(
    state: State, run: Run, step: StepRun, number: int, generation: int, now_s: float
) -> None:
    """Reproduces a part, since a blob of its published result is lost."""
    part = step.parts[number]
    part.result = None
    name = name_of(run, step, part.inputs)
    key = ActionKey(scopes_of(run, step, part.inputs)[0], name)
    subscriber = Subscriber(run.uid, step.plan.path, number)
    action = state.actions.get(key)
    if action is None:
        action = Action(key, spec_of(state, run, step, part.inputs, key.scope), (key.scope,))
        state.actions[key] = action
        enqueue(state, action, now_s)
    part.key = key
    action.replace = True
    action.generation = max(action.generation, generation)
    action.subscribers[subscriber] = None
    ready_actions.mark_changed(state, action)


def enqueue(state: State, action: Action, now_s: float) -> None:
    """Puts an action into the ready set."""
    action.move(ActionState.READY)
    action.ready_s = action.ready_s or now_s
    for run in action.runs():
        state.runs[run].has_executed = True
    ready_actions.enter(state, action)


def deliver(state: State, action: Action, result: ActionResult) -> None:
    """Gives a published result to all subscribers and forgets the action."""
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        part = step.parts.get(subscriber.part)
        if part is None or part.result is not None:
            continue
        part.result = result
        run.inline.update(result.inline)
        step.pending_parts -= 1
        step.fresh.append(subscriber.part)
        state.touch(run, subscriber.path)
    action.move(ActionState.DONE)
    _forget(state, action)


def fail(state: State, action: Action, failure: Failure) -> None:
    """Fails an action for good: every subscribed step fails with this failure."""
    action.move(ActionState.FAILED)
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if not step.ended and step.failure is None:
            step.failure = failure
            state.touch(run, subscriber.path)
    cancel_attempts(state, action)
    _forget(state, action)


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
        action.subscribers.pop(subscriber, None)
        ready_actions.mark_changed(state, action)
        if not action.subscribers:
            _withdraw(state, action, subscriber)


def _withdraw(state: State, action: Action, last: Subscriber) -> None:
    action.move(ActionState.WITHDRAWN)
    for attempt in action.attempts.values():
        attempt.payers = (last.uid,)
        attempt.payer_steps = {last.uid: (last.path, last.part)}
        state.runs[last.uid].unsettled[attempt.attempt_id] = None
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
    state.unnoted.pop(action.key, None)
    if state.actions.get(action.key) is action:
        del state.actions[action.key]
    state.dirty = True


def started(state: State, action: Action, now_s: float) -> None:
    """Moves the subscribed steps to RUNNING."""
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if step.state is StepState.READY:
            run.move(step, StepState.RUNNING, now_s)
            state.changed(run)


def back_to_ready(state: State, action: Action, now_s: float) -> None:
    """Returns an action to the ready set after a failure; single-part steps become READY again."""
    action.move(ActionState.READY)
    ready_actions.enter(state, action)
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if step.state is StepState.RUNNING and step.total == 1:
            run.move(step, StepState.READY, now_s, "lost or to be retried")
        state.changed(run)
