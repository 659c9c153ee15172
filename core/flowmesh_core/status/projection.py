"""Projects the machine's state to statuses for people and programs.

The control plane calls it whenever a run has changed; nothing here is read back.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.fabric import FabricStatus, WorkerStatus
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Attempt, Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.machine.steps import source_artifact
from flowmesh_core.protocol.results import Artifact

_PHASES = {
    name: n for n, name in enumerate(("fetching", "loading", "queued", "running", "storing"), 1)
}


_READY = StepState.READY
_RUNNING = StepState.RUNNING
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def run_status(state: State, uid: str, now_s: float) -> RunStatus:
    """Returns a run with all its steps.

    Raises:
        KeyError: no such run is live.
    """
    run = state.runs[uid]
    steps = tuple(_step(state, run, s) for s in run.steps.values())
    counts: dict[str, int] = {}
    for step in run.steps.values():
        counts[step.state] = counts.get(step.state, 0) + 1
    failed = run.steps.get(run.failed_step)
    return RunStatus(
        uid=run.uid,
        name=run.plan.name,
        namespace=run.plan.namespace,
        phase=run.phase,
        created_s=run.created_s,
        ended_s=run.ended_s,
        steps=steps,
        counts=counts,
        actions=sum(s.actions for s in steps),
        executed=sum(s.executed for s in steps),
        hits=sum(s.hits for s in steps),
        paid_nanousd=run.paid_nanousd,
        saved_nanousd=run.saved_nanousd,
        joules=run.joules,
        joules_estimated=run.joules_estimated,
        budget_nanousd=run.budget_nanousd,
        deadline_s=run.deadline_s,
        priority=run.priority,
        failed_step=run.failed_step,
        reason=run.failure.kind if run.failure else "",
        message=run.failure.message if run.failure else run.cancel_reason,
        remedy=run.failure.remedy if run.failure else "",
        log=_failure_log(run, failed),
        outputs={name: _output(run, name) for name in run.plan.outputs},
        eta_s=_eta_s(run, now_s),
        audit_of=run.plan.audit_of,
    )


def _failure_log(run: Run, failed: StepRun | None) -> tuple[str, ...]:
    if failed is None:
        return ()
    detail = run.failure.detail.splitlines() if run.failure else []
    return tuple([*failed.log, *detail][-20:])


def _output(run: Run, name: str) -> dict[str, Any] | None:
    sources = run.plan.outputs[name]
    artifacts = [a for s in sources if (a := source_artifact(run, s)) is not None]
    if not artifacts:
        return None
    if len(artifacts) == 1:
        return _describe(artifacts[0])
    return {"parts": [_describe(a) for a in artifacts], "kind": artifacts[0].kind}


def _describe(artifact: Artifact) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": artifact.kind,
        "digest": artifact.digest,
        "blob": artifact.blob,
        "bytes": artifact.size_bytes,
    }
    if artifact.kind == "dataset":
        described["rows"] = artifact.rows
    if artifact.value is not None:
        described["value"] = artifact.value
    return described


def _step(state: State, run: Run, step: StepRun) -> StepStatus:
    attempts = [] if step.ended else _attempts(state, step)
    done = sum(p.result is not None for p in step.parts.values())
    reason, message = _reason(state, step, attempts)
    status = StepStatus(
        path=step.plan.path,
        engine=step.plan.engine,
        state=step.state,
        reason=reason,
        message=message,
        actions=step.total or len(step.parts),
        done=done,
        hits=step.hits,
        in_flight=step.in_flight,
        executed=step.executed,
        attempts=step.attempts,
        tokens=step.tokens,
        paid_nanousd=step.paid_nanousd,
        saved_nanousd=step.saved_nanousd,
        shared_with=tuple(step.shared_with),
        started_s=step.started_s,
        ended_s=step.ended_s,
        matrix=step.plan.matrix,
    )
    return _with_progress(status, step, attempts) if attempts else status


def _with_progress(status: StepStatus, step: StepRun, attempts: Sequence[Attempt]) -> StepStatus:
    """Adds what the step's attempts report."""
    counts_tokens = step.contract.work_unit == "tokens"
    return structs.replace(
        status,
        done_units=sum(a.done for a in attempts),
        total_units=sum(a.total for a in attempts),
        unit=next((a.unit for a in attempts if a.unit), ""),
        tokens_per_s=sum(a.tokens_rate for a in attempts) if counts_tokens else 0.0,
        workers=tuple(sorted({a.worker for a in attempts})),
        doing=max((a.phase for a in attempts), key=lambda phase: _PHASES.get(phase, 0)),
    )


def _reason(state: State, step: StepRun, attempts: Sequence[Attempt]) -> tuple[str, str]:
    """Why a step is in its state, as a word and as a sentence."""
    if step.state is _READY and step.wait_reason:
        return step.wait_reason, step.wait_detail
    if step.evaluation and not step.ended:
        return "condition", "its condition is being evaluated"
    full = state.store_full if step.state is _RUNNING else None
    if full is not None and any(a.store_full_s for a in attempts):
        return full.kind, f"{full.message}; {full.remedy}"
    return step.reason, step.failure.message if step.failure else ""


def _attempts(state: State, step: StepRun) -> list[Attempt]:
    """The attempts that a step waits for; once it has ended they are those of other runs."""
    keys = [p.key for p in step.parts.values() if p.result is None and p.key is not None]
    found = [state.actions[key] for key in keys if key in state.actions]
    return [attempt for action in found for attempt in action.attempts.values()]


def _eta_s(run: Run, now_s: float) -> float:
    """The remaining seconds by the share of ended steps: crude; -1 before the first has ended."""
    ended = len(run.steps) - run.open_steps
    if run.ended_s:
        return 0.0
    if not ended:
        return -1.0
    return (now_s - run.created_s) / ended * run.open_steps


def worker_statuses(state: State, now_s: float) -> list[WorkerStatus]:
    """Returns all connected workers in order of name."""
    return [_worker(state, w, now_s) for _, w in sorted(state.workers.items())]


def _worker(state: State, worker: Worker, now_s: float) -> WorkerStatus:
    idle = "ready" if state.takes_work(worker) else "cordoned"
    busy = "busy" if worker.attempts else idle
    return WorkerStatus(
        shape=worker.shape,
        state="draining" if worker.draining else busy,
        instances=tuple(worker.instances),
        components=tuple(worker.components),
        attempts=tuple(worker.attempts),
        last_seen_s=worker.last_seen_s,
        lifetime_s=max(0.0, now_s - worker.started_s),
        bill_nanousd=worker.meter.billed_nanousd,
        store_problem=worker.store_problem,
    )


def fabric_status(state: State) -> FabricStatus:
    """Returns the fabric's accounts and queues."""
    book = state.book
    return FabricStatus(
        epoch=state.epoch,
        workers=len(state.workers),
        ready_actions=len(state.ready),
        running_actions=len(state.attempts),
        bill_nanousd=book.bill_nanousd,
        receipts_nanousd=book.receipts_nanousd,
        fabric_nanousd=book.fabric_nanousd,
        unsettled_nanousd=book.unsettled_nanousd,
        saved_nanousd=book.saved_nanousd,
        executed=book.executed,
        hits_published=book.hits_published,
        hits_in_flight=book.hits_in_flight,
        hits_step_level=book.hits_step_level,
        services_nanousd=book.services_nanousd,
        rejections=tuple(
            {
                "signature": r.signature,
                "cause": r.cause,
                "count": r.count,
                "detail": r.detail,
            }
            for r in state.rejections
        ),
    )
