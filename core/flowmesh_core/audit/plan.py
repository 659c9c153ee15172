"""The plan of an audit: a run of its own, with one step for each action that is reproduced.

Its steps depend only on stored content, are looked up nowhere and published nowhere: the machine
delivers a result of this run to its step alone. Every attempt runs isolated.
"""

from collections.abc import Mapping, Sequence

import msgspec

from flowmesh_core.audit.reconstruct import ReproducibleAction
from flowmesh_core.graph.plan import ArtifactSource, Cache, Edge, Plan, StepPlan
from flowmesh_core.protocol.results import Artifact

LEAST_PRIORITY = -1000
"""An audit waits for everything else of its tenant."""


def audit_plan(
    uid: str,
    plan: Plan,
    chosen: Sequence[ReproducibleAction],
    *,
    avoid_workers: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Plan, dict[str, Artifact]]:
    """Returns the plan of an audit.

    Args:
        uid: the audited run.
        plan: its plan.
        chosen: the actions to reproduce.
        avoid_workers: of a sampled audit, which the fabric pays: for each path in it, the workers
            that are used only where there is no other. None for an audit that a user asked for.

    Returns:
        The plan, and its artifacts by reference.
    """
    artifacts: dict[str, Artifact] = {}
    avoided = avoid_workers or {}
    steps = tuple(_step(made, artifacts, avoided.get(audit_path(made), ())) for made in chosen)
    made = Plan(
        name=f"audit-of-{plan.name}",
        namespace=plan.namespace,
        steps=steps,
        outputs={},
        weights=plan.weights,
        priority=LEAST_PRIORITY,
        audit_of=uid,
        paid_by_fabric=avoid_workers is not None,
    )
    return made, artifacts


def audit_path(action: ReproducibleAction) -> str:
    """Returns the path of an action's step in the audit."""
    return action.step.path if action.chunk < 0 else f"{action.step.path}/{action.chunk}"


def _step(
    action: ReproducibleAction, artifacts: dict[str, Artifact], avoid: tuple[str, ...]
) -> StepPlan:
    edges = []
    for port, artifact in action.inputs.items():
        reference = f"audit:{artifact.digest}:{artifact.blob}"
        artifacts[reference] = artifact
        edges.append(Edge(port, artifact.kind, (ArtifactSource(artifact.kind, reference),)))
    return msgspec.structs.replace(
        action.step,
        path=audit_path(action),
        edges=tuple(edges),
        when="",
        when_steps=(),
        after=(),
        cache=Cache(salt=action.step.cache.salt),
        avoid_workers=avoid,
    )
