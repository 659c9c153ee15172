"""Repins a run: it goes on with newer engine versions, and published results stay.

Its steps begin anew by the new plan. Those whose engines have not changed find their results by
look-up; the others run again. What the run has paid stays paid.
"""

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_core.accounting import ledger_lines
from flowmesh_core.accounting.ledger_lines import AmendmentLine
from flowmesh_core.machine import actions, run_lifecycle
from flowmesh_core.machine.events import Repinned
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State

PINS = ledger_lines.PINS
"""The field of an amendment that names the record of the new pins."""


def repinned(state: State, event: Repinned, now_s: float) -> None:
    """Replaces a run's plan and begins its steps anew; a run that has ended is left alone."""
    run = event.run
    before = state.runs.get(run.uid)
    if before is not None:
        if before.phase in ENDED_PHASES or before.finishing:
            return
        _detach(state, before)
    run_lifecycle.submitted(state, run, now_s)
    now = state.runs[run.uid]
    if before is not None:
        # Cancelled attempts that have not ended yet are paid by the run with its new plan.
        now.unsettled.update(before.unsettled)
        now.reserved_nanousd += before.reserved_nanousd
    state.append(now, AmendmentLine(now_s, {PINS: event.key, "versions": dict(event.versions)}))
    state.dirty = True


def _detach(state: State, run: Run) -> None:
    """Removes the run and its subscriptions."""
    for step in run.steps.values():
        if not step.ended:
            actions.unsubscribe(state, run, step)
    del state.runs[run.uid]
