"""Why a step is in its state: what it waits for, its hits and its attempts; for ``fmesh why``."""

from typing import Any

import msgspec

from flowmesh_api.v1.why import AttemptLine, HitLine, Why, WhyPart
from flowmesh_control.queries.run_views import RunViews, no_step
from flowmesh_core.machine.disclosure import named
from flowmesh_core.machine.model import Attempt, Run, StepPart, StepRun
from flowmesh_core.machine.ready_actions import may_start, placement_key
from flowmesh_core.machine.state import State
from flowmesh_core.status.input_uses import input_uses

PARTS_SHOWN = 50


async def why_step(state: State, views: RunViews, uid: str, path: str) -> Why:
    """Returns the state and history of a step of a live or ended run.

    Raises:
        NotFoundError: there is no such run or step.
    """
    status = await views.status(uid)
    shown = next((s for s in status.steps if s.path == path), None)
    if shown is None:
        raise no_step(uid, path, [s.path for s in status.steps])
    lines = [la for la in await views.lines(uid) if getattr(la, "step", None) == path]
    run = state.runs.get(uid)
    step = run.steps[path] if run is not None else None
    plan = run.plan if run is not None else await views.plan(uid)
    planned = next((p for p in plan.steps if p.path == path), None) if plan is not None else None
    states = {s.path: s for s in status.steps}
    return Why(
        uid=uid,
        step=shown,
        waits_for=_waits_for(state, uid, step) if step is not None else (),
        rejections=_rejections(state, run, step) if run is not None and step is not None else (),
        parts=_parts(state, run, step) if run is not None and step is not None else (),
        more_parts=max(0, len(step.parts) - PARTS_SHOWN) if step is not None else 0,
        hits=tuple(la for la in lines if isinstance(la, HitLine)),
        attempts=tuple(la for la in lines if isinstance(la, AttemptLine)),
        scopes=msgspec.to_builtins(run.scopes) if run is not None else {},
        inputs=input_uses(planned, states) if planned is not None else (),
    )


def _waits_for(state: State, uid: str, step: StepRun) -> tuple[str, ...]:
    steps = state.runs[uid].steps
    return tuple(p for p in step.parents if not steps[p].ended)


def _parts(state: State, run: Run, step: StepRun) -> tuple[WhyPart, ...]:
    found = []
    for number, part in list(step.parts.items())[:PARTS_SHOWN]:
        shown = _part(state, run, step, number, part)
        if shown is not None:
            found.append(shown)
    return tuple(found)


def _part(state: State, run: Run, step: StepRun, number: int, part: StepPart) -> WhyPart | None:
    key = part.key
    if key is None:
        return None
    # An action that is live after the step has ended is another run's.
    action = None if step.ended else state.actions.get(key)
    if action is None:
        return WhyPart(number, key.scope, key.action_id, "done" if part.result else "")
    attempts = (_attempt(state, a) for a in action.attempts.values())
    return WhyPart(
        part=number,
        scope=key.scope,
        action_id=key.action_id,
        state=action.state,
        subscribers=named(state, run, action.runs()),
        attempts=tuple(attempts),
        losses=action.losses,
        failures=dict(action.failures),
        isolated=action.isolate,
        avoids=tuple(sorted(action.avoid_workers)),
        last_failure=action.last_failure.message if action.last_failure else "",
    )


def _attempt(state: State, attempt: Attempt) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": attempt.attempt_id,
        "worker": attempt.worker,
        "phase": attempt.phase,
    }
    worker = state.workers.get(attempt.worker)
    signature = attempt.info.signature
    instances = worker.instances if worker is not None else ()
    silent_s = max((i.silent_s for i in instances if i.signature == signature), default=0.0)
    return {**shown, "silentS": silent_s} if silent_s else shown


def _rejections(state: State, run: Run, step: StepRun) -> tuple[dict[str, Any], ...]:
    keys = [p.key for p in step.parts.values() if p.key is not None and not step.ended]
    actions = [state.actions[k] for k in keys if k in state.actions]
    hold = state.held.get(run.plan.namespace)
    if hold is not None:
        held = [a for a in actions if a.key in state.ready and not may_start(state, a)]
        if held:
            return ({"cause": hold.cause, "count": len(held), "detail": hold.detail},)
    waiting = {placement_key(state, a) for a in actions}
    return tuple(
        {"cause": r.cause, "count": r.count, "detail": r.detail}
        for r in state.rejections
        if r.key in waiting
    )
