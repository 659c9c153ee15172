"""The roots of a collection that only the live state knows.

Called by the control plane's :class:`CacheAdmin` and by the simulator's collections.
"""

from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact


def live_artifacts(state: State) -> list[Artifact]:
    """Returns the inputs, outputs and checkpoints of live runs.

    They include the outputs of ended attempts that are not published yet.
    """
    found = checkpoints.roots(state)
    ends = [a.end for a in state.attempts.values()] + [
        orphan.end for orphan in state.orphaned_ends.values()
    ]
    for end in ends:
        found += end.outputs.values() if end is not None else ()
    for run in state.runs.values():
        found += run.artifacts.values()
        for step in run.steps.values():
            found += step.inputs.values()
            found += (a for a in step.outputs.values() if a is not None)
            for part in step.parts.values():
                found += part.inputs.values()
                found += part.result.outputs.values() if part.result else ()
    return found
