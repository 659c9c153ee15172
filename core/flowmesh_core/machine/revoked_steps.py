"""Which steps of a run used or made revoked content; the machine and the control plane ask.

A step is concerned if an input of it is revoked, if it made what is revoked, or if it is fed by a
step that is concerned, whether that has ended or not. A source after the one that a port takes as
the first is not among its inputs.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from flowmesh_core.graph.plan import FIRST, ArtifactSource, Edge, Plan, Source
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

Outputs = Mapping[str, Artifact | None]


def revoked_steps(
    plan: Plan,
    artifacts: Mapping[str, Artifact],
    outputs: Mapping[str, Outputs],
    revoked: AbstractSet[Digest],
) -> list[str]:
    """Returns the paths of these steps, in the plan's order.

    Args:
        plan: of the run.
        artifacts: of the plan's references.
        outputs: of the steps that have ended, by path and port.
        revoked: identities.
    """
    found: dict[str, None] = {}

    def is_there(source: Source) -> bool:
        if isinstance(source, ArtifactSource):
            return True
        return outputs.get(source.step, {}).get(source.port) is not None

    def possible(edge: Edge) -> tuple[Source, ...]:
        first = next((i for i, s in enumerate(edge.sources) if is_there(s)), None)
        return edge.sources if edge.pick != FIRST or first is None else edge.sources[: first + 1]

    def concerns(source: Source) -> bool:
        if isinstance(source, ArtifactSource):
            artifact = artifacts.get(source.reference)
            return artifact is not None and artifact.digest in revoked
        return source.step in found

    for step in plan.steps:
        made = outputs.get(step.path, {}).values()
        if any(a is not None and a.digest in revoked for a in made) or any(
            concerns(source) for edge in step.edges for source in possible(edge)
        ):
            found[step.path] = None
    return list(found)
