"""The roots of a collection that only the live state knows.

Called by the control plane's :class:`CacheAdmin` and by the simulator's collections.
"""

from collections.abc import Iterator, Sequence

from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.revocation import revoked_paths
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact


def live_artifacts(
    state: State, revoked: Sequence[ContentRevoked] = ()
) -> Iterator[tuple[tuple[str, ...], Artifact]]:
    """Yields the inputs, outputs and checkpoints of live runs, each with the scopes to keep it in.

    They include the outputs of ended attempts that are not published yet.

    Args:
        state: the machine's.
        revoked: what is no root for the runs that these concern.
    """
    for scope, checkpoint in checkpoints.roots(state):
        yield (scope,), checkpoint
    ends = [(a.action.key.scope, a.end) for a in state.attempts.values() if a.end is not None]
    ends += [(key.scope, orphan.end) for key, orphan in state.orphaned_ends.items()]
    for scope, end in ends:
        for artifact in end.outputs.values():
            yield (scope,), artifact
    for run in state.runs.values():
        for artifact in _artifacts_of(run, revoked):
            yield run.scopes.readable, artifact


def _artifacts_of(run: Run, revoked: Sequence[ContentRevoked]) -> Iterator[Artifact]:
    concerned = [(e, paths) for e in revoked if (paths := revoked_paths(run, e))]
    identities = {digest for e, _ in concerned for digest in e.identities}
    left_out = {path for _, paths in concerned for path in paths}
    yield from (a for a in run.artifacts.values() if a.digest not in identities)
    for path, step in run.steps.items():
        if path in left_out:
            continue
        yield from step.inputs.values()
        yield from (a for a in step.outputs.values() if a is not None)
        for part in step.parts.values():
            yield from part.inputs.values()
            yield from part.result.outputs.values() if part.result else ()
