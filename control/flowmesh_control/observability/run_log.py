"""Logs runs: verdicts and failures always, every step and attempt at level DEBUG."""

import logging
from typing import Any

from flowmesh_api.v1.enums import StepState
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, Line, StepLine, VerdictLine
from flowmesh_core.machine.commands import AttemptSettled
from flowmesh_core.machine.state import State

log = logging.getLogger("flowmesh.runs")

_QUIET = EXECUTED_OUTCOMES | {"replica", "cancelled", "drained"}


class RunLogListener:
    """Writes log lines about runs, steps and attempts."""

    def __init__(self, state: State) -> None:
        self._state = state

    def appended(self, uid: str, line: Line) -> None:
        """As :meth:`RunListener.appended`."""
        if type(line) is VerdictLine:  # isinstance of a msgspec class takes 0.2 us
            level = logging.WARNING if line.reason else logging.INFO
            why = f": {line.message}" if line.message else ""
            log.log(level, "run %s %s%s", uid, line.phase, why, extra=self._run(uid, line.step))
        elif type(line) is StepLine:
            self._step(uid, line)

    def settled(self, attempt: AttemptSettled) -> None:
        """As :meth:`RunListener.settled`."""
        level = logging.DEBUG if attempt.outcome in _QUIET else logging.WARNING
        if not log.isEnabledFor(level):
            return
        what = f"{attempt.outcome} on {attempt.worker}"
        if attempt.message:
            what += f": {attempt.message}"
        known = {"action": attempt.action_id, "attempt": attempt.attempt_id}
        for uid, path in dict.fromkeys(attempt.subscribers):
            extra = {**self._run(uid, path), **known, "worker": attempt.worker}
            log.log(level, "step %s of run %s: attempt %s", path, uid, what, extra=extra)

    def _step(self, uid: str, line: StepLine) -> None:
        level = logging.WARNING if line.state == StepState.FAILED else logging.DEBUG
        if log.isEnabledFor(level):
            why = f": {line.message}" if line.message else ""
            extra = self._run(uid, line.step)
            log.log(level, "step %s of run %s %s%s", line.step, uid, line.state, why, extra=extra)

    def _run(self, uid: str, step: str) -> dict[str, Any]:
        run = self._state.runs.get(uid)
        name = f"{run.plan.namespace}/{run.plan.name}" if run is not None else ""
        found = {"workflow": name, "run": uid, "step": step}
        return {key: value for key, value in found.items() if value}
