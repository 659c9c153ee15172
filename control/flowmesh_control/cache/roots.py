"""The roots of a collection that only the live state knows.

Called by the control plane's :class:`CacheAdmin` and by the simulator's collections.
"""

from collections.abc import Iterator

from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact


def live_artifacts(state: State) -> Iterator[tuple[tuple[str, ...], Artifact]]:
    """Yields the inputs, outputs and checkpoints of live runs, each with the scopes to keep it in.

    They include the outputs of ended attempts that are not published yet.
    """
    for scope, checkpoint in checkpoints.roots(state):
        yield (scope,), checkpoint
    ends = [(a.action.key.scope, a.end) for a in state.attempts.values() if a.end is not None]
    ends += [(key.scope, orphan.end) for key, orphan in state.orphaned_ends.items()]
    for scope, end in ends:
        for artifact in end.outputs.values():
            yield (scope,), artifact
    for run in state.runs.values():
        for artifact in _artifacts_of(run):
            yield run.scopes.readable, artifact


def _artifacts_of(run: Run) -> Iterator[Artifact]:
    yield from run.artifacts.values()
    for step in run.steps.values():
        yield from step.inputs.values()
        yield from (a for a in step.outputs.values() if a is not None)
        for part in step.parts.values():
            yield from part.inputs.values()
            yield from part.result.outputs.values() if part.result else ()
