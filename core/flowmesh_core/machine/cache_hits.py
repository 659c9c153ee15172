"""Results that are reused: published earlier, by another run, or by work in flight.

A run that reuses a result books a hit in its ledger, with what that saved. The way to a hit:
``sharing.scopes`` says which scopes a namespace publishes to and looks up, by its cache policy;
``action_spec.name_of`` names the work without naming a tenant; ``actions.subscribe`` joins work in
flight or asks for a look-up; the answer comes here, and ``merged`` books what was in flight.
"""

from flowmesh_api.v1.enums import ActionState, HitKind
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.machine import actions
from flowmesh_core.machine.base_model import base_model
from flowmesh_core.machine.disclosure import producer_of
from flowmesh_core.machine.events import ActionKey, LookedUp
from flowmesh_core.machine.model import Action, Run, StepPart, StepRun, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import ActionResult

_LOOKING_UP = ActionState.LOOKING_UP
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def looked_up(state: State, event: LookedUp, now_s: float) -> None:
    """Applies the answer to a look-up of an action, for the subscriptions that asked this.

    What one of them accepts another may not read, or not accept for its age. The action is placed
    as soon as one has found nothing; an answer that comes later completes those that it is for.
    """
    action = state.actions.get(event.key)
    if action is None:
        return
    waiting = _answered(action, event)
    if not waiting:
        return
    result = event.result
    if result is None or not _has_outputs(action, result):
        if result is not None:
            action.replace = True
            action.generation = max(action.generation, result.generation + 1)
        _missed(state, action, event, now_s)
        return
    for subscriber in waiting:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        executed_as = run.executions.get(action.key.action_id)
        if _hit_before(run, subscriber, result) or executed_as == (
            subscriber.path,
            subscriber.part,
        ):
            continue
        if executed_as is None and result.run_uid == run.uid:
            _executed_before(state, run, subscriber, result, now_s)
        else:
            _hit(state, run, step, subscriber, result, HitKind.PUBLISHED, now_s)
    actions.deliver(state, action, result, waiting, event.found_in)


def _missed(state: State, action: Action, event: LookedUp, now_s: float) -> None:
    """Places an action whose result was not found; remembers what was not looked for."""
    wider = event.not_before_s <= action.missed_from_s and event.min_trust <= action.missed_trust
    if wider or action.state is _LOOKING_UP:
        action.missed_from_s, action.missed_trust = event.not_before_s, event.min_trust
    if action.state is _LOOKING_UP:
        actions.enqueue(state, action, now_s)


def _answered(action: Action, event: LookedUp) -> list[Subscriber]:
    """Marks and returns the subscribers that an answer is for."""
    question = (event.scopes, event.not_before_s, event.min_trust)
    every = not event.scopes
    if every:
        action.questions.clear()
    else:
        action.questions.pop(question, None)
    found = []
    for subscriber, subscription in action.subscribers.items():
        if not subscription.answered and (every or subscription.terms.question == question):
            subscription.answered = True
            found.append(subscriber)
    return found


def _has_outputs(action: Action, result: ActionResult) -> bool:
    """Whether a result has all outputs that the engine requires."""
    ports = output_ports(action.spec.contract, action.spec.params)
    return all(p.name in result.outputs for p in ports if p.required)


def step_hit(
    state: State, run: Run, step: StepRun, key: ActionKey, result: ActionResult, now_s: float
) -> None:
    """Completes a whole step from a step-level result."""
    subscriber = Subscriber(run.uid, step.plan.path, -1)
    if not _hit_before(run, subscriber, result) and result.run_uid != run.uid:
        _hit(state, run, step, subscriber, result, HitKind.STEP_LEVEL, now_s)
    step.parts = {0: StepPart(step.inputs, key, result)}
    step.total, step.pending_parts, step.step_level = 1, 0, True
    run.inline.update(result.inline)
    state.touch(run, step.plan.path)


def _hit_before(run: Run, subscriber: Subscriber, result: ActionResult) -> bool:
    """Whether an earlier epoch has already booked this hit, which is counted once."""
    key = (subscriber.path, subscriber.part, result.action_id)
    return run.restored_hits.pop(key, None) is not None


def _executed_before(
    state: State, run: Run, subscriber: Subscriber, result: ActionResult, now_s: float
) -> None:
    """Books an execution of the run itself whose line was lost with an earlier epoch.

    Its cost stays the fabric's, which has paid for it since.
    """
    attempt_id, usage = result.provenance.attempt_id, result.usage
    line = AttemptLine(
        time_s=now_s,
        step=subscriber.path,
        chunk=subscriber.part,
        action_id=result.action_id,
        attempt_id=attempt_id,
        worker=result.provenance.worker,
        incarnation="",
        outcome="adopted",
        bill_nanousd=state.resumed_charges.get(attempt_id, 0),
        share_nanousd=0,
        units=usage.units,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        run_s=usage.run_s,
        message="published, and its line lost, before the control plane was started again",
    )
    state.append(run, line)


def _hit(
    state: State,
    run: Run,
    step: StepRun,
    subscriber: Subscriber,
    result: ActionResult,
    kind: HitKind,
    now_s: float,
) -> None:
    if kind is HitKind.STEP_LEVEL:
        state.book.hits_step_level += 1
    else:
        state.book.hits_published += 1
    _book(
        state, run, step, subscriber, result, kind, result.bill.nanousd, result.bill.joules, now_s
    )


def merged(
    state: State,
    run: Run,
    step: StepRun,
    subscriber: Subscriber,
    result: ActionResult,
    *,
    share_nanousd: int,
    share_joules: float,
    sharers: tuple[str, ...],
    now_s: float,
) -> None:
    """Books a part that shared another subscriber's attempt, with what that saved."""
    saved = max(0, result.bill.nanousd - share_nanousd)
    joules = max(0.0, result.bill.joules - share_joules)
    state.book.hits_in_flight += 1
    _book(state, run, step, subscriber, result, HitKind.IN_FLIGHT, saved, joules, now_s, sharers)


def _book(
    state: State,
    run: Run,
    step: StepRun,
    subscriber: Subscriber,
    result: ActionResult,
    kind: HitKind,
    saved: int,
    joules: float,
    now_s: float,
    sharers: tuple[str, ...] = (),
) -> None:
    """Books what a hit saved, in nano-dollars and joules, and writes its line."""
    state.book.saved_nanousd += saved
    state.figures.saved(
        run.plan.namespace,
        result.provenance.pool,
        base_model(run, step),
        nanousd=saved,
        joules=joules,
        now_s=now_s,
    )
    state.append(
        run,
        HitLine(
            time_s=now_s,
            step=subscriber.path,
            chunk=subscriber.part,
            action_id=result.action_id,
            hit=kind,
            saved_nanousd=saved,
            producer=producer_of(run, result),
            sharers=sharers,
            joules_saved=joules,
            units=result.usage.units,
        ),
    )
