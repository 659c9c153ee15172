"""For which namespaces a store task is done, and whether its result is still awaited.

Used by the command executor: a task is queued for its namespace, and dropped if nothing awaits its
result any more, for example because its run was cancelled.
"""

from collections.abc import Sequence

from flowmesh_core.machine.commands import (
    Assign,
    CheckBlobs,
    Command,
    CompareContent,
    DeleteCorruptBlobs,
    EvaluateCondition,
    FinalizeRun,
    LookUp,
    Publish,
    PutBlob,
    PutManifest,
)
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import StepLookUp
from flowmesh_core.machine.pending_publications import awaited
from flowmesh_core.machine.state import State

_OF_RUNS = (
    PutManifest,
    PutBlob,
    CheckBlobs,
    FinalizeRun,
    DeleteCorruptBlobs,
    CompareContent,
    EvaluateCondition,
)


class WorkOwners:
    """Implements :class:`TaskOwners` on the machine's state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def weight(self, namespace: str) -> float:
        """Returns the namespace's weight, as in placement."""
        return self._state.fair.weights.get(namespace, 1.0)

    def namespaces(self, command: Command) -> Sequence[str]:
        """Returns the namespaces of the runs that need it; the empty one where none does."""
        # By type and the most frequent first: isinstance of a class of msgspec takes 0.2 us.
        if type(command) is LookUp:
            return (self._of_run(command.uid),)
        if type(command) is Publish:
            return self._subscribed(command.key) or (self._of_run(command.result.run_uid),)
        if isinstance(command, _OF_RUNS):
            return (self._of_run(command.uid),)
        return (command.namespace,) if isinstance(command, Assign) else ("",)

    def awaits(self, command: LookUp | CheckBlobs | EvaluateCondition | Publish) -> bool:
        """Whether the machine awaits the result; it would ignore it otherwise."""
        if type(command) is LookUp:
            question = (command.scopes, command.not_before_s, command.min_trust)
            action = self._state.actions.get(command.key)
            if action is not None and question in action.questions:
                return True
            return StepLookUp(command.key, question) in self._state.step_lookups
        if type(command) is Publish:
            return awaited(self._state, command.result.provenance.attempt_id) is not None
        if type(command) is CheckBlobs:
            run = self._state.runs.get(command.uid)
            return run is not None and run.checking
        run = self._state.runs.get(command.uid)
        pending = run.evaluations.get(command.number) if run is not None else None
        return run is not None and pending is not None and not run.steps[pending.step].ended

    def _subscribed(self, key: ActionKey) -> Sequence[str]:
        action = self._state.actions.get(key)
        if action is None:
            return ()
        if len(action.subscribers) == 1:
            return (self._of_run(action.first_run()),)
        return tuple(dict.fromkeys(self._of_run(uid) for uid in action.runs()))

    def _of_run(self, uid: str) -> str:
        run = self._state.runs.get(uid)
        return "" if run is None else run.plan.namespace
