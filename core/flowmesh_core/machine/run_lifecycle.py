"""The course of a run: it is submitted, amended, cancelled, and ends."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flowmesh_api.v1.enums import ENDED_PHASES, Phase, StepState
from flowmesh_core.accounting.ledger_lines import (
    PINS,
    AmendmentLine,
    CheckpointLine,
    ConditionLine,
    HitLine,
    Line,
    StepLine,
    VerdictLine,
)
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.graph.critical_path import remaining_s
from flowmesh_core.graph.evaluation_budget import EvaluationBudget
from flowmesh_core.graph.plan import ArtifactSource, StepSource
from flowmesh_core.machine import (
    checkpoints,
    ledger_counts,
    ready_actions,
    repair,
    revocation,
    steps,
)
from flowmesh_core.machine.cache_scopes import scopes_of
from flowmesh_core.machine.commands import CheckBlobs, FinalizeRun, PutBlob, PutManifest
from flowmesh_core.machine.events import Submitted
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

STEP_S = 1.0
"""What a step counts on the critical path: only the order of lengths matters."""


def submitted(state: State, event: Submitted, now_s: float) -> None:
    """Adds a run and begins its steps; a known one is left alone, and a cancelled one ends."""
    if event.uid in state.runs:
        return
    run = run_of(state.catalog, event)
    state.runs[event.uid] = run
    _restore(run, event)
    state.changed(run)
    if event.cancelled:
        _restore_ends(run, event.restored)
        cancel(state, run.uid, Failure(FailureKind.CANCELLED, event.cancelled), now_s)
        return
    revocation.submitted(state, run)
    for path, step in run.steps.items():
        if not step.waiting:
            state.touch(run, path)
    state.touched[run.uid] = None


def run_of(catalog: Catalog, event: Submitted) -> Run:
    """Returns a run as it was accepted, before any of its steps has begun."""
    plan = event.plan
    step_runs = {}
    children: dict[str, list[str]] = {}
    for step in plan.steps:
        contract = catalog.pinned(step.engine, step.contract, step.implementation, step.minor)
        if contract is None:
            contract = catalog.newest(step.engine)
        if contract is None:
            raise KeyError(
                f"engine {step.engine!r} is not in the catalog, though admission accepted it"
            )
        parents = step.parents()
        step_runs[step.path] = StepRun(step, contract, parents, waiting=len(parents))
        for parent in parents:
            children.setdefault(parent, []).append(step.path)
    run = Run(
        uid=event.uid,
        plan=plan,
        created_s=event.created_s,
        scopes=event.scopes,
        artifacts=dict(event.artifacts),
        inline={},
        steps=step_runs,
        children=children,
        open_steps=len(step_runs),
        priority=plan.priority,
        budget_nanousd=plan.budget_nanousd,
        deadline_s=plan.deadline_s,
        phase=Phase.SUSPENDED if plan.suspend else Phase.RUNNING,
        suspended=plan.suspend,
        quarantine_salts=event.quarantine_salts,
        conditions=EvaluationBudget.of(sum(bool(step.when) for step in plan.steps)),
    )
    run.remaining_s = remaining_s(plan, dict.fromkeys(step_runs, STEP_S))
    return run


def _restore(run: Run, event: Submitted) -> None:
    """Restores what the ledger of an earlier epoch says of the run."""
    for line in event.restored:
        run.lines.append(line)
        ledger_counts.count(run, line)
        if isinstance(line, HitLine):
            run.restored_hits[line.step, line.chunk, line.action_id] = line
        elif isinstance(line, CheckpointLine):
            checkpoints.restore(run, line)
        elif isinstance(line, ConditionLine):
            run.verdicts[line.step, line.digest] = line
        elif isinstance(line, AmendmentLine):
            _apply(run, line.changes)


def _restore_ends(run: Run, lines: Iterable[Line]) -> None:
    """Restores how each step ended, from the ledger, for a run that is only to end."""
    ends: dict[str, StepLine] = {}
    for line in lines:
        if isinstance(line, StepLine):
            ends[line.step] = line
        elif isinstance(line, AmendmentLine) and PINS in line.changes:
            ends.clear()  # its steps began again with other versions
    for path, end in ends.items():
        step = run.steps.get(path)
        if step is not None:
            step.state, step.reason = StepState(end.state), end.reason
            step.outputs, step.ended_s = dict(end.outputs), end.time_s
            run.open_steps -= 1


def amended(state: State, uid: str, changes: Mapping[str, Any], now_s: float) -> None:
    """Changes the amendable fields of a run that has not ended."""
    run = state.runs.get(uid)
    if run is None or run.phase in ENDED_PHASES:
        return
    state.append(run, AmendmentLine(now_s, dict(changes)))
    _apply(run, changes)
    for action in state.ready.values():
        if uid in action.runs():
            ready_actions.mark_changed(state, action)
    state.changed(run)
    state.dirty = True


def _apply(run: Run, changes: Mapping[str, Any]) -> None:
    run.priority = int(changes.get("priority", run.priority))
    run.budget_nanousd = int(changes.get("budgetNanousd", run.budget_nanousd))
    run.deadline_s = float(changes.get("deadlineS", run.deadline_s))
    run.suspended = bool(changes.get("suspend", run.suspended))
    if run.phase in (Phase.RUNNING, Phase.SUSPENDED):
        run.phase = Phase.SUSPENDED if run.suspended else Phase.RUNNING


def cancel(state: State, uid: str, failure: Failure, now_s: float) -> None:
    """Cancels a run: its open steps end, and actions that no other run wants are withdrawn."""
    run = state.runs.get(uid)
    if run is None or run.phase in ENDED_PHASES or run.finishing:
        return
    if failure.kind is not FailureKind.CANCELLED and not (run.failure or run.cancel_reason):
        run.failure = failure
    run.cancel_reason = run.cancel_reason or failure.message
    for step in run.steps.values():
        if not step.ended:
            steps.end_cancelled(state, run, step, now_s, failure.kind)
    run.checking = False
    state.touched[uid] = None


def end_if_over(state: State, run: Run, now_s: float) -> None:
    """Ends a run when its steps have ended, its money is settled and its outputs are stored.

    The outputs of a failed or cancelled run are stored too, but only those of a successful one are
    checked to be complete.
    """
    if run.open_steps or run.checking or run.finishing or run.unsettled:
        return
    if not run.checked:
        digests = _output_blobs(state, run)
        if not run.failure and not run.cancel_reason:
            run.checking = True
            state.emit(CheckBlobs(run.uid, digests, run.scopes.readable))
            return
    _finish(state, run, now_s)


def _outputs(state: State, run: Run) -> Iterator[tuple[str, Artifact]]:
    """Yields the artifacts of the outputs that are not revoked, with the scope that is to have it.

    What a step made belongs where its results are published, and an input where it was uploaded.
    """
    for sources in run.plan.outputs.values():
        for source in sources:
            artifact = steps.source_artifact(run, source)
            if artifact is None:
                yield from _parts(state, run, source)
                continue
            if revocation.is_revoked(state, run, artifact.digest):
                continue
            scope = run.scopes.private
            if isinstance(source, StepSource):
                step = run.steps[source.step]
                scope = scopes_of(run, step, step.inputs)[0]
            yield scope, artifact


def _parts(
    state: State, run: Run, source: StepSource | ArtifactSource
) -> Iterator[tuple[str, Artifact]]:
    """Yields what is published of an output of a step that did not complete, as ``_outputs``."""
    if not isinstance(source, StepSource):
        return
    for part in run.steps[source.step].parts.values():
        artifact = None if part.result is None else part.result.outputs.get(source.port)
        if artifact is None or part.key is None:
            continue
        if not revocation.is_revoked(state, run, artifact.digest):
            yield part.key.scope, artifact


def _output_blobs(state: State, run: Run) -> dict[str, frozenset[Digest]]:
    """Stores what only came inside results; returns the other digests, which must be checked."""
    check: defaultdict[str, set[Digest]] = defaultdict(set)
    for scope, artifact in _outputs(state, run):
        for digest in artifact.blobs():
            if digest in run.inline:
                state.emit(PutBlob(digest, run.inline[digest], run.uid, scope))
            elif artifact.manifest is not None and digest == artifact.blob:
                state.emit(PutManifest(digest, artifact.manifest, run.uid, scope))
            else:
                check[scope].add(digest)
    return {scope: frozenset(digests) for scope, digests in check.items()}


def blobs_checked(state: State, uid: str, missing: frozenset[Digest], now_s: float) -> None:
    """Applies the answer about a run's outputs: lost ones are reproduced."""
    run = state.runs.get(uid)
    if run is None or not run.checking:
        return
    run.checking = False
    if missing and repair.outputs_lost(state, run, missing, now_s):
        state.touched[uid] = None
        return
    if missing:
        lost = ", ".join(sorted(d[:12] for d in missing)[:5])
        run.failure = Failure(
            FailureKind.MISSING_BLOB,
            f"outputs are lost that no step of this run can reproduce: {lost}",
            "upload the input again",
        )
    run.checked = True
    state.touched[uid] = None


def _finish(state: State, run: Run, now_s: float) -> None:
    if run.failure is not None:
        run.phase = Phase.FAILED
    elif run.cancel_reason:
        run.phase = Phase.CANCELLED
    else:
        run.phase = Phase.SUCCEEDED
    run.finishing = True
    run.ended_s = now_s
    state.figures.runs_ended[run.phase, run.failure.kind if run.failure else ""] += 1
    state.append(
        run,
        VerdictLine(
            time_s=now_s,
            phase=run.phase,
            reason=run.failure.kind if run.failure else "",
            message=run.failure.message if run.failure else run.cancel_reason,
            step=run.failed_step,
        ),
    )
    state.changed(run)
    state.emit(FinalizeRun(run.uid))


def finalised(state: State, uid: str) -> None:
    """Forgets a run whose ``final`` is written (its record is in the store)."""
    run = state.runs.get(uid)
    if run is not None and run.finishing:
        del state.runs[uid]


def deadlines(state: State, now_s: float) -> None:
    """Cancels runs that have passed their deadline."""
    for run in list(state.runs.values()):
        if run.phase in ENDED_PHASES or now_s <= run.deadline_at_s:
            continue
        failure = Failure(
            FailureKind.DEADLINE,
            f"the deadline of {run.deadline_s:.0f} s after creation has passed",
            "raise spec.deadline and submit again: what is published is not run again",
        )
        cancel(state, run.uid, failure, now_s)
