"""A run goes on with other versions than those it was pinned to: what is published stays.

Its steps begin anew by the new plan. Those whose engines have not changed find their results by
look-up; the others are made again. What the run has paid stays paid.
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
    """Takes a run up by its new plan; one that has ended meanwhile is left alone."""
    run = event.run
    before = state.runs.get(run.uid)
    if before is not None:
        if before.phase in ENDED_PHASES or before.finishing:
            return
        _let_go(state, before)
    run_lifecycle.submitted(state, run, now_s)
    now = state.runs[run.uid]
    if before is not None:
        # Attempts that are being stopped are still to be paid for, by the run as it is now.
        now.unsettled.update(before.unsettled)
        now.reserved_nanousd += before.reserved_nanousd
    state.append(now, AmendmentLine(now_s, {PINS: event.key, "versions": dict(event.versions)}))
    state.dirty = True


def _let_go(state: State, run: Run) -> None:
    """Takes the run off everything that it waits for."""
    for step in run.steps.values():
        if not step.ended:
            actions.unsubscribe(state, run, step)
    del state.runs[run.uid]
