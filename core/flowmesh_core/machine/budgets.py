"""Where a budget stops a run: before an assignment that it cannot cover, and while attempts run.

``billing`` settles what was spent; nothing is stopped there.
"""

from collections.abc import Mapping

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine import actions
from flowmesh_core.machine.model import Action, Attempt, Run
from flowmesh_core.machine.state import State
from flowmesh_core.units import usd_text


def affordable(state: State, action: Action, reserve: int, trust: int) -> bool:
    """Whether the runs that accept a result of this trust can pay for an attempt, in equal parts.

    A run that cannot reserve its part leaves, and the parts of the others are worked out without
    it. One whose own attempts have reserved what it lacks stays; where no other can pay, the
    action waits for them to end.
    """
    while runs := [state.runs[uid] for uid in action.accepting_runs(trust)]:
        part = -(-reserve // len(runs))
        short = [r for r in runs if _exceeds(r, part)]
        if not short:
            return True
        out = [r for r in short if not r.reserved_nanousd or _exceeds(r, part, reserved=False)]
        if len(short) == len(runs):
            out = [r for r in short if not r.reserved_nanousd]
            if not out:
                return False
        elif not out:
            return True
        _remove(state, action, {r.uid: _unaffordable(r, part) for r in out})
    return False


def joined_late(state: State, attempt: Attempt, trust: int) -> None:
    """Removes runs that joined after the dispatch and cannot pay their part of what it cost.

    Runs that do not accept a result of this trust pay nothing.
    """
    action = attempt.action
    if len(action.subscribers) == 1:
        return
    runs = [state.runs[uid] for uid in action.accepting_runs(trust)]
    while len(runs) > 1:
        part = -(-attempt.charged_nanousd // len(runs))
        late = (r for r in runs if r.uid not in attempt.reserved)
        out = [r for r in late if _exceeds(r, part, reserved=False)]
        if not out or len(out) == len(runs):
            return
        _remove(state, action, {r.uid: _unaffordable(r, part) for r in out})
        runs = [state.runs[uid] for uid in action.accepting_runs(trust)]


def _remove(state: State, action: Action, failures: Mapping[str, Failure]) -> None:
    """Ends all subscriptions of these runs."""
    leaving = {s: failures[s.uid] for s in action.subscribers if s.uid in failures}
    actions.leave(state, action, leaving)


def _unaffordable(run: Run, part: int) -> Failure:
    return Failure(
        FailureKind.BUDGET,
        f"the next action is predicted to cost up to {usd_text(part)}; of the budget of "
        f"{usd_text(run.budget_nanousd)} {usd_text(run.paid_nanousd)} are spent and "
        f"{usd_text(run.reserved_nanousd)} reserved",
        "raise spec.budgetUsd, or request fewer rows, samples or tokens",
    )


def _exceeds(run: Run, part: int, *, reserved: bool = True) -> bool:
    if not run.budget_nanousd:
        return False
    return run.paid_nanousd + run.reserved_nanousd * reserved + part > run.budget_nanousd


def overspent(state: State, now_s: float) -> None:
    """Ends subscriptions of runs whose part of an attempt past its reservation exceeds the budget.

    Without any other run the attempt stops, and they pay for it. While a result is being published
    the work is done, and a replica attempt of it stops anyway.
    """
    for attempt in list(state.attempts.values()):
        if attempt.end is not None or attempt.charged_nanousd <= attempt.reserve_nanousd:
            continue
        action = attempt.action
        if action.state is not ActionState.RUNNING:
            continue
        runs = [state.runs[uid] for uid in action.accepting_runs(attempt.shape.trust)]
        share = -(-attempt.charged_nanousd // max(1, len(runs)))
        over = {r.uid: _spent(r) for r in runs if _exceeds(r, share, reserved=False)}
        if over:
            _remove(state, action, over)


def _spent(run: Run) -> Failure:
    return Failure(
        FailureKind.BUDGET,
        f"the budget of {usd_text(run.budget_nanousd)} is spent",
        "raise spec.budgetUsd and submit again: what is published is not run again",
    )
