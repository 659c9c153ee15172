"""Results that are reused: published earlier, by another run, or by work in flight.

A run that reuses a result books a hit in its ledger, with what that saved. The way to a hit:
``sharing.scopes`` says which scopes a namespace publishes to and looks up, by its cache policy;
``action_spec.name_of`` names the work without naming a tenant; ``actions.subscribe`` joins work in
flight or asks for a look-up; the answer comes here, and ``merged`` books what was in flight.
"""

from flowmesh_api.v1.enums import ActionState, HitKind
from flowmesh_core.accounting.ledger_lines import HitLine
from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.machine import actions
from flowmesh_core.machine.base_model import base_model
from flowmesh_core.machine.disclosure import producer_of
from flowmesh_core.machine.events import ActionKey, LookedUp
from flowmesh_core.machine.model import Action, Run, StepPart, StepRun, Subscriber
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import ActionResult


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
        if action.state is ActionState.LOOKING_UP:
            action.missed_from_s = event.not_before_s
            actions.enqueue(state, action, now_s)
        else:
            action.missed_from_s = min(action.missed_from_s, event.not_before_s)
        return
    for subscriber in waiting:
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        if _hit_before(run, step, subscriber, result):
            continue
        if action.key.action_id in run.restored_actions or result.run_uid == run.uid:
            step.executed += 1
        else:
            _hit(state, run, step, subscriber, result, HitKind.PUBLISHED, now_s)
    actions.deliver(state, action, result, waiting)


def _answered(action: Action, event: LookedUp) -> list[Subscriber]:
    """Marks and returns the subscribers that an answer is for."""
    question = (event.scopes, event.not_before_s)
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
    if not _hit_before(run, step, subscriber, result) and result.run_uid != run.uid:
        _hit(state, run, step, subscriber, result, HitKind.STEP_LEVEL, now_s)
    step.parts = {0: StepPart(step.inputs, key, result)}
    step.total, step.pending_parts, step.step_level = 1, 0, True
    run.inline.update(result.inline)
    state.touch(run, step.plan.path)


def _hit_before(run: Run, step: StepRun, subscriber: Subscriber, result: ActionResult) -> bool:
    """Counts a hit that an earlier epoch has already booked; returns False where there is none."""
    line = run.restored_hits.pop((subscriber.path, subscriber.part, result.action_id), None)
    if line is None:
        return False
    step.hits += 1
    step.in_flight += line.hit == HitKind.IN_FLIGHT
    step.saved_nanousd += line.saved_nanousd
    step.shared_with.update(dict.fromkeys(filter(None, line.sharers or (line.producer,))))
    return True


def _hit(
    state: State,
    run: Run,
    step: StepRun,
    subscriber: Subscriber,
    result: ActionResult,
    kind: HitKind,
    now_s: float,
) -> None:
    step.hits += 1
    producer = producer_of(run, result)
    if producer:
        step.shared_with[producer] = None
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
    step.hits += 1
    step.in_flight += 1
    step.shared_with.update(dict.fromkeys(sharers))
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
    step.saved_nanousd += saved
    run.saved_nanousd += saved
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
