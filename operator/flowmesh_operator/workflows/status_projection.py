"""Converts a run's status to the status of its object, of bounded size."""

import json
from collections.abc import Mapping
from typing import Any

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.spec.status import MOST_MESSAGE_CHARS, MOST_ROWS
from flowmesh_core.status.conditions import WorkflowCondition, WorkflowReason
from flowmesh_core.units import usd_text
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.timestamps import timestamp
from flowmesh_operator.workflows import conditions

MOST_VALUE_BYTES = 1024
"""Limit of an output's value."""
MINOR = ("eta", "costUsd", "savedUsd", "steps")
"""Fields that change all the time; a change of these alone is written less often."""
_FIRST = {StepState.FAILED: 0, StepState.RUNNING: 1, StepState.READY: 2, StepState.PENDING: 3}

Status = dict[str, Any]


def of_run(run: RunStatus, about: StatusContext, steps_ref: str = "") -> Status:
    """Returns the status of an accepted workflow.

    Args:
        run: the run's status.
        about: the object, epoch and time.
        steps_ref: the reference of the document with all steps; empty where none is needed yet.
    """
    status = _base(about, run.phase, conditions.of_run(run))
    total = sum(run.counts.values())
    done = run.counts.get(StepState.COMPLETED, 0) + run.counts.get(StepState.SKIPPED, 0)
    status |= {
        "message": conditions.ending(run)[: conditions.MOST_CHARS],
        "progress": f"{done}/{total}",
        "counts": {"total": total, **{str(s).lower(): run.counts.get(s, 0) for s in StepState}},
        "actions": run.actions,
        "executed": run.executed,
        "hits": run.hits,
        "costUsd": _usd(run.paid_nanousd),
        "savedUsd": _usd(run.saved_nanousd),
        "eta": timestamp(about.now_s + run.eta_s) if run.eta_s > 0 else None,
        "startedAt": timestamp(run.created_s),
        "endedAt": timestamp(run.ended_s) if run.ended_s else None,
        "failedStep": run.failed_step,
        "outputs": {n: _output(o) for n, o in list(run.outputs.items())[:MOST_ROWS]},
        "steps": [_row(s) for s in _chosen(run.steps)],
        "stepsRef": steps_ref,
    }
    return status


def of_refusal(said: list[ConditionUpdate], about: StatusContext) -> Status:
    """Returns the status of a workflow that was not accepted: refused (failed), or not yet.

    One that waits for room in its namespace's quota is suspended.
    """
    refused = any(s.type is WorkflowCondition.FAILED for s in said)
    waits = Phase.SUSPENDED if said[0].reason is WorkflowReason.QUOTA_EXCEEDED else "Pending"
    status = _base(about, Phase.FAILED if refused else waits, said)
    ended = {"endedAt": about.before.get("endedAt") or timestamp(about.now_s)} if refused else {}
    return {**status, **ended, "message": said[0].message[: conditions.MOST_CHARS]}


def _base(about: StatusContext, phase: str, said: list[ConditionUpdate]) -> Status:
    """Returns the fields that every status has."""
    return {
        "phase": phase,
        "observedGeneration": about.generation,
        "epoch": about.epoch,
        "conditions": about.conditions(said, most_chars=conditions.MOST_CHARS),
    }


def only_minor(status: Status, shown: Mapping[str, Any]) -> bool:
    """Returns whether a status differs from the shown one in ``MINOR`` fields only."""
    return all(shown.get(key) == value for key, value in status.items() if key not in MINOR)


def patch(status: Status, shown: Mapping[str, Any]) -> Status:
    """Returns the merge patch from the shown status to this one; empty if they are equal."""
    changed: Status = {}
    for key, value in status.items():
        former = shown.get(key)
        if (former or None) == (value or None):
            continue
        if isinstance(value, dict) and isinstance(former, dict):
            value = {**dict.fromkeys(former), **value}  # noqa: PLW2901 - removed keys are null
        changed[key] = value
    return changed


def _chosen(steps: tuple[StepStatus, ...]) -> list[StepStatus]:
    if len(steps) <= MOST_ROWS:
        return list(steps)
    ordered = sorted(steps, key=lambda s: _FIRST.get(StepState(s.state), len(_FIRST)))
    return ordered[:MOST_ROWS]


def _row(step: StepStatus) -> Status:
    row: Status = {
        "path": step.path,
        "uses": step.engine,
        "state": step.state,
        "reason": step.reason,
        "message": step.message[:MOST_MESSAGE_CHARS],
        "progress": f"{step.done}/{step.actions}" if step.actions else "",
        "hits": step.hits,
        "costUsd": _usd(step.paid_nanousd),
        "savedUsd": _usd(step.saved_nanousd),
        "startedAt": timestamp(step.started_s) if step.started_s else None,
        "endedAt": timestamp(step.ended_s) if step.ended_s else None,
    }
    return {key: value for key, value in row.items() if value not in ("", None)}


def _usd(nanousd: int) -> str:
    """Returns dollars without the sign: the field's name has the unit."""
    return usd_text(nanousd).removeprefix("$")


def _output(output: Mapping[str, Any] | None) -> Status:
    if output is None:
        return {"kind": "", "reference": ""}
    parts = output.get("parts") or [output]
    shown: Status = {"kind": output.get("kind", ""), "reference": output.get("reference", "")}
    for key in ("rows", "bytes"):
        if key in parts[0]:
            shown[key] = sum(part[key] for part in parts)
    value = output.get("value")
    if value is not None and len(json.dumps(value)) <= MOST_VALUE_BYTES:
        shown["value"] = value
    return shown
