"""For whom a piece of store work is done, and whether anybody still waits for its answer.

Asked by ``outside``: the work of a namespace is queued as that namespace's, and a question whose
last asker has left (its run was cancelled, or has ended) is not put to the store any more.
"""

from flowmesh_core.run.commands import (
    Assign,
    CheckBlobs,
    Command,
    Discard,
    Finish,
    LookUp,
    Publish,
    PutBlob,
    PutManifest,
)
from flowmesh_core.run.events import ActionKey
from flowmesh_core.run.state import State
from flowmesh_core.run.states import ActionState


class WorkOwners:
    """Reads who waits for what from the machine's state."""

    def __init__(self, state: State) -> None:
        """Asks this state whenever it is asked."""
        self._state = state

    def weight(self, namespace: str) -> float:
        """The namespace's weight, as in placement."""
        return self._state.fair.weights.get(namespace, 1.0)

    def namespace(self, command: Command) -> str:
        """Whose work it is; empty where no run waits for it.

        Of several namespaces that wait for one action it is the one that asked first.
        """
        match command:
            case LookUp():
                return self._of_run(self._first_asker(command.key))
            case Publish():
                return self._of_run(command.result.run_uid)
            case PutManifest() | PutBlob() | CheckBlobs() | Finish() | Discard():
                return self._of_run(command.uid)
            case Assign():
                return command.namespace
        return ""

    def awaits(self, command: LookUp | CheckBlobs) -> bool:
        """Whether the answer changes anything: the machine ignores one that it does not await."""
        if isinstance(command, CheckBlobs):
            run = self._state.runs.get(command.uid)
            return run is not None and run.checking
        action = self._state.actions.get(command.key)
        if action is not None and action.state is ActionState.LOOKING_UP:
            return True
        return command.key in self._state.step_lookups

    def _first_asker(self, key: ActionKey) -> str:
        action = self._state.actions.get(key)
        if action is not None:
            return next(iter(action.subscribers)).uid if action.subscribers else ""
        waiting = self._state.step_lookups.get(key)
        return next(iter(waiting))[0] if waiting else ""

    def _of_run(self, uid: str) -> str:
        run = self._state.runs.get(uid)
        return "" if run is None else run.plan.namespace
