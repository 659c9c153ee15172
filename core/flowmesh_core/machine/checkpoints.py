"""Checkpoints of actions: the newest is recorded in the ledgers and given to the next attempt.

They belong to the action and not to the attempt that made them: the next attempt begins there, on
whichever worker. A checkpoint can only save work. One that is corrupt is dropped, and an action's
last try begins at the start if the try before began at a checkpoint and failed (ADR 7).

What is made of a checkpoint is trusted no more than the workers that made that: an attempt of a
more trusted pool, which others wait for, does not begin there.
"""

from collections.abc import Iterable

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.accounting.ledger_lines import CheckpointLine
from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.attempt_trust import trust_of
from flowmesh_core.machine.commands import DeleteCorruptBlobs
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.latest_checkpoint import LatestCheckpoint
from flowmesh_core.machine.model import Action, Attempt, Run
from flowmesh_core.machine.state import State, parse_attempt_id
from flowmesh_core.protocol.messages import Checkpoint, InputRef
from flowmesh_core.protocol.results import Artifact

KIND = "checkpoint"
"""The kind of a checkpoint's artifact: a tree of whatever files its engine wrote."""

LINE_EVERY_S = 20.0
"""Seconds between an action's checkpoint lines in the ledger while it runs, at least."""

_OPEN = frozenset({ActionState.LOOKING_UP, ActionState.READY, ActionState.RUNNING})


def reported(state: State, worker: Worker, reports: Iterable[Checkpoint], now_s: float) -> None:
    """Applies a worker's reports of checkpoints; a repeated report counts once."""
    for report in reports:
        key = parse_attempt_id(report.attempt_id)
        action = state.actions.get(key)
        if action is None:
            if now_s < state.recovering_until_s and not report.spoiled:
                found = _from_report(report, trust_of(state, worker, None), now_s)
                state.orphaned_checkpoints[key] = found
        elif action.state in _OPEN:
            if report.spoiled:
                _drop_corrupt(state, action, report)
            else:
                attempt = action.attempts.get(report.attempt_id)
                trust = trust_of(state, worker, attempt)
                if attempt is None and action.checkpoint is not None:  # it may have begun there
                    trust = min(trust, action.checkpoint.trust)
                _update(state, action, _from_report(report, trust, now_s), now_s)
                worker.local_digests[report.digest] = None


def begin(state: State, run: Run, action: Action, now_s: float) -> None:
    """Gives a newly wanted action the checkpoint that its run's ledger or a worker reported."""
    restored = run.checkpoints.pop(action.key, None)
    if restored is not None and (
        action.checkpoint is None or action.checkpoint.time_s < restored.time_s
    ):
        action.checkpoint = restored
        ready_actions.mark_changed(state, action)
    orphan = state.orphaned_checkpoints.pop(action.key, None)
    if orphan is not None:
        if action.checkpoint is not None:  # its attempt may have begun there
            orphan.trust = min(orphan.trust, action.checkpoint.trust)
        _update(state, action, orphan, now_s)


def restore(run: Run, line: CheckpointLine) -> None:
    """Takes a checkpoint from a ledger; the last line of an action counts."""
    run.checkpoints[ActionKey(line.scope, line.action_id)] = LatestCheckpoint(
        line.digest, line.done, line.size_bytes, line.time_s, noted=True, trust=line.trust
    )


def resume(state: State, action: Action, attempt: Attempt, now_s: float) -> InputRef | None:
    """Returns what a new attempt begins at, or None for the start."""
    checkpoint = action.checkpoint
    if checkpoint is None or not action.accepts_wholly(checkpoint.trust, attempt.shape.trust):
        return None
    attempt.resumed, attempt.resumed_trust = checkpoint.digest, checkpoint.trust
    note(state, action, now_s)  # a later leader has to know what the attempt may have begun at
    return InputRef(artifact(checkpoint))


def artifact(kept: LatestCheckpoint) -> Artifact:
    """Returns a checkpoint as an artifact; it has no identity, so it is named by its blob."""
    return Artifact(KIND, kept.digest, kept.digest, kept.size_bytes)


def roots(state: State) -> list[tuple[str, Artifact]]:
    """Returns the checkpoints of unfinished actions, with their scopes; a collection keeps them."""
    found = [(k.scope, a.checkpoint) for k, a in state.actions.items() if a.checkpoint is not None]
    for run in state.runs.values():
        found += ((key.scope, checkpoint) for key, checkpoint in run.checkpoints.items())
    found += ((key.scope, orphan) for key, orphan in state.orphaned_checkpoints.items())
    return [(scope, artifact(checkpoint)) for scope, checkpoint in found]


def note_all(state: State, now_s: float) -> None:
    """Writes the checkpoint lines that are due; called as time advances."""
    for action in list(state.unnoted.values()):
        if not 0 <= now_s - action.noted_s < LINE_EVERY_S:
            note(state, action, now_s)


def note(state: State, action: Action, now_s: float) -> None:
    """Writes an action's newest checkpoint to the ledgers of the runs that want it now."""
    state.unnoted.pop(action.key, None)
    checkpoint = action.checkpoint
    if checkpoint is None or checkpoint.noted or action.state not in _OPEN:
        return
    checkpoint.noted = True
    action.noted_s = now_s
    noted: set[str] = set()
    for s in action.subscribers:
        if s.uid in noted:
            continue
        noted.add(s.uid)
        state.append(
            state.runs[s.uid],
            CheckpointLine(
                time_s=checkpoint.time_s,
                step=s.path,
                chunk=s.part,
                scope=action.key.scope,
                action_id=action.key.action_id,
                digest=checkpoint.digest,
                done=checkpoint.done,
                size_bytes=checkpoint.size_bytes,
                trust=max(0, checkpoint.trust),
            ),
        )


def doubt(action: Action, attempt: Attempt) -> None:
    """Drops the checkpoint before the last try, if the attempt that failed began at it."""
    checkpoint = action.checkpoint
    if checkpoint is not None and attempt.resumed == checkpoint.digest:
        action.checkpoint = None


def _from_report(report: Checkpoint, trust: int, now_s: float) -> LatestCheckpoint:
    return LatestCheckpoint(report.digest, report.done, report.size_bytes, now_s, trust=trust)


def _update(state: State, action: Action, checkpoint: LatestCheckpoint, now_s: float) -> None:
    known = action.checkpoint
    if known is not None and _rank(action, checkpoint) <= _rank(action, known):
        return
    action.checkpoint = checkpoint
    ready_actions.mark_changed(state, action)
    # The action makes progress, so earlier losses were the workers' and not its own.
    action.losses = 0
    for subscription in action.subscribers.values():
        subscription.losses = subscription.failed_loads = 0
    state.unnoted[action.key] = action
    if not 0 <= now_s - action.noted_s < LINE_EVERY_S:
        note(state, action, now_s)


def _rank(action: Action, checkpoint: LatestCheckpoint) -> tuple[bool, float]:
    """Orders checkpoints: those that count for all that wait, then those that save more work."""
    return action.accepts_wholly(checkpoint.trust), checkpoint.done


def _drop_corrupt(state: State, action: Action, report: Checkpoint) -> None:
    scopes = tuple(dict.fromkeys((*action.read_scopes, action.key.scope)))
    state.emit(DeleteCorruptBlobs(frozenset(report.spoiled), action.first_run(), scopes))
    attempt = action.attempts.get(report.attempt_id)
    if attempt is not None:
        attempt.resumed, attempt.resumed_trust = "", None
    if action.checkpoint is not None and action.checkpoint.digest == report.digest:
        action.checkpoint = None
        ready_actions.mark_changed(state, action)
