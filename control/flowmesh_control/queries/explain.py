"""Where a step's actions could be placed now, and where they ran: for ``fmesh explain``."""

from flowmesh_api.v1.why import AttemptLine, Explanation, PlacedAction
from flowmesh_control.queries.run_views import RunViews, no_step
from flowmesh_core.machine.fleet_snapshot import as_if_ready
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.placement.explain import candidates_of

ACTIONS_SHOWN = 20


async def explain_step(
    state: State, views: RunViews, uid: str, path: str, now_s: float
) -> Explanation:
    """Scores the waiting and running actions of a step, and lists where others ran.

    Raises:
        NotFoundError: there is no such run or step.
    """
    known = [s.path for s in (await views.status(uid)).steps]
    if path not in known:
        raise no_step(uid, path, known)
    run = state.runs.get(uid)
    actions, more = _actions(state, run, path, now_s) if run is not None else ([], 0)
    weights = run.plan.weights if run is not None else await views.weights(uid)
    lines = await views.lines(uid)
    return Explanation(
        uid=uid,
        step=path,
        weights=(weights.alpha, weights.beta, weights.gamma) if weights else (0.0, 0.0, 0.0),
        actions=tuple(actions),
        more=more,
        attempts=tuple(la for la in lines if isinstance(la, AttemptLine) and la.step == path),
    )


def _actions(state: State, run: Run, path: str, now_s: float) -> tuple[list[PlacedAction], int]:
    """Returns the first actions that wait or run, scored, and how many more there are."""
    found: list[PlacedAction] = []
    more = 0
    step = run.steps[path]
    for number, part in ({} if step.ended else step.parts).items():
        action = state.actions.get(part.key) if part.key is not None else None
        if action is None or part.result is not None:
            continue
        if len(found) == ACTIONS_SHOWN:
            more += 1
            continue
        ready, snapshot = as_if_ready(state, action, now_s)
        found.append(
            PlacedAction(
                part=number,
                action_id=action.key.action_id,
                state=action.state,
                workers=tuple(sorted(a.worker for a in action.attempts.values())),
                candidates=tuple(candidates_of(ready, snapshot, state.model)),
            )
        )
    return found, more
