"""Where a budget stops a run: before an assignment that it cannot cover, and while attempts run.

``billing`` settles what was spent; nothing is stopped there.
"""

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.machine import actions
from flowmesh_core.machine.model import Action, Run
from flowmesh_core.machine.state import State
from flowmesh_core.units import usd_text


def affordable(state: State, action: Action, runs: list[Run], reserve: int) -> bool:
    """Whether some subscribed run can pay its part; fails the action where none can."""
    part = -(-reserve // len(runs))
    short = [r for r in runs if _exceeds(r, part)]
    if len(short) < len(runs):
        return True
    run = short[0]
    failure = Failure(
        FailureKind.BUDGET,
        f"the next action is predicted to cost up to {usd_text(part)}; of the budget of "
        f"{usd_text(run.budget_nanousd)} {usd_text(run.paid_nanousd)} are spent and "
        f"{usd_text(run.reserved_nanousd)} reserved",
        "raise spec.budgetUsd, or request fewer rows, samples or tokens",
    )
    if not any(run.reserved_nanousd for run in short):
        actions.fail(state, action, failure)
    return False


def _exceeds(run: Run, part: int) -> bool:
    if not run.budget_nanousd:
        return False
    return run.paid_nanousd + run.reserved_nanousd + part > run.budget_nanousd


def overspent(state: State, now_s: float) -> None:
    """Stops attempts past their reservation where all subscribed runs are out of budget.

    While a result is being published the work is done, and a replica attempt of it stops anyway.
    """
    for attempt in list(state.attempts.values()):
        if attempt.end is not None or attempt.charged_nanousd <= attempt.reserve_nanousd:
            continue
        if attempt.action.state is ActionState.PUBLISHING:
            continue
        runs = [state.runs[uid] for uid in attempt.action.runs()]
        share = -(-attempt.charged_nanousd // max(1, len(runs)))
        over = [r for r in runs if r.budget_nanousd and r.paid_nanousd + share > r.budget_nanousd]
        if runs and len(over) == len(runs):
            failure = Failure(
                FailureKind.BUDGET,
                f"the budget of {usd_text(over[0].budget_nanousd)} is spent",
                "raise spec.budgetUsd and submit again: what is published is not run again",
            )
            for s in attempt.action.subscribers:
                attempt.payer_steps[s.uid] = (s.path, s.part)
            attempt.payers = tuple(dict.fromkeys(attempt.payer_steps))
            for run in runs:
                run.unsettled[attempt.attempt_id] = None
            actions.fail(state, attempt.action, failure)
