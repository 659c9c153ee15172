"""Checkpoints of actions: the newest is kept, noted in the ledgers, and given to the next attempt.

They belong to the action and not to the attempt that made them: whichever attempt comes next, on
whichever worker, begins there. A checkpoint only ever saves work. One that is spoiled is dropped,
and an action's last try begins at the start where the try before began at a checkpoint and failed.
"""

from collections.abc import Iterable

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.accounting.ledger_lines import CheckpointLine
from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.commands import DeleteCorruptBlobs
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Attempt, LatestCheckpoint, Run, Worker
from flowmesh_core.machine.state import State, parse_attempt_id
from flowmesh_core.protocol.messages import Checkpoint, InputRef
from flowmesh_core.protocol.results import Artifact

KIND = "checkpoint"
"""The kind of a checkpoint's artifact: a tree of whatever files its engine wrote."""

LINE_EVERY_S = 20.0
"""The ledger hears of an action's checkpoints at most this often while it runs."""

_OPEN = frozenset({ActionState.LOOKING_UP, ActionState.READY, ActionState.RUNNING})


def reported(state: State, worker: Worker, reports: Iterable[Checkpoint], now_s: float) -> None:
    """Takes what a worker says of checkpoints; a report said twice counts once."""
    for report in reports:
        key = parse_attempt_id(report.attempt_id)
        action = state.actions.get(key)
        if action is None:
            if now_s < state.recovering_until_s and not report.spoiled:
                state.unclaimed_checkpoints[key] = (report, now_s)
        elif action.state in _OPEN:
            if report.spoiled:
                _spoiled(state, action, report)
            else:
                _newer(state, action, _kept(report, now_s), now_s)
                worker.near[report.digest] = None


def begin(state: State, run: Run, action: Action, now_s: float) -> None:
    """An action is wanted: takes over what the run's ledger or a worker said of it before."""
    restored = run.checkpoints.pop(action.key, None)
    if restored is not None and (
        action.checkpoint is None or action.checkpoint.time_s < restored.time_s
    ):
        action.checkpoint = restored
        ready_actions.outdated(state, action)
    report, said_s = state.unclaimed_checkpoints.pop(action.key, (None, 0.0))
    if report is not None:
        _newer(state, action, _kept(report, said_s), now_s)


def restore(run: Run, line: CheckpointLine) -> None:
    """Takes over what a ledger says; the last line of an action counts."""
    run.checkpoints[ActionKey(line.scope, line.action_id)] = LatestCheckpoint(
        line.digest, line.done, line.size_bytes, line.time_s, noted=True
    )


def resume(action: Action, attempt: Attempt) -> InputRef | None:
    """What a new attempt begins at."""
    if action.checkpoint is None:
        return None
    attempt.resumed = action.checkpoint.digest
    return InputRef(artifact(action.checkpoint))


def artifact(kept: LatestCheckpoint) -> Artifact:
    """A checkpoint as an artifact."""
    return Artifact(KIND, kept.digest, kept.digest, kept.size_bytes)


def roots(state: State) -> list[Artifact]:
    """The checkpoints that a collection keeps: those of unfinished actions."""
    found = [a.checkpoint for a in state.actions.values() if a.checkpoint is not None]
    for run in state.runs.values():
        found += run.checkpoints.values()
    found += [_kept(report, said_s) for report, said_s in state.unclaimed_checkpoints.values()]
    return [artifact(kept) for kept in found]


def note_all(state: State, now_s: float) -> None:
    """Writes down what has waited for long enough; called as time passes."""
    for action in list(state.unnoted.values()):
        if not 0 <= now_s - action.noted_s < LINE_EVERY_S:
            note(state, action, now_s)


def note(state: State, action: Action, now_s: float) -> None:
    """Writes an action's newest checkpoint to the ledgers of the runs that want it now."""
    state.unnoted.pop(action.key, None)
    kept = action.checkpoint
    if kept is None or kept.noted or action.state not in _OPEN:
        return
    kept.noted = True
    action.noted_s = now_s
    told: set[str] = set()
    for s in action.subscribers:
        if s.uid in told:
            continue
        told.add(s.uid)
        state.append(
            state.runs[s.uid],
            CheckpointLine(
                time_s=kept.time_s,
                step=s.path,
                chunk=s.part,
                scope=action.key.scope,
                action_id=action.key.action_id,
                digest=kept.digest,
                done=kept.done,
                size_bytes=kept.size_bytes,
            ),
        )


def doubt(action: Action, attempt: Attempt) -> None:
    """The action has one try left: it begins at the start if this one's checkpoint did not help."""
    kept = action.checkpoint
    if kept is not None and attempt.resumed == kept.digest:
        action.checkpoint = None


def _kept(report: Checkpoint, now_s: float) -> LatestCheckpoint:
    return LatestCheckpoint(report.digest, report.done, report.size_bytes, now_s)


def _newer(state: State, action: Action, kept: LatestCheckpoint, now_s: float) -> None:
    known = action.checkpoint
    if known is not None and kept.done <= known.done:
        return
    action.checkpoint = kept
    ready_actions.outdated(state, action)
    # It gets on: what was lost before was lost to the workers, not to the action.
    action.losses = 0
    state.unnoted[action.key] = action
    if not 0 <= now_s - action.noted_s < LINE_EVERY_S:
        note(state, action, now_s)


def _spoiled(state: State, action: Action, report: Checkpoint) -> None:
    state.emit(DeleteCorruptBlobs(frozenset(report.spoiled), action.first_run()))
    attempt = action.attempts.get(report.attempt_id)
    if attempt is not None:
        attempt.resumed = ""
    if action.checkpoint is not None and action.checkpoint.digest == report.digest:
        action.checkpoint = None
        ready_actions.outdated(state, action)
