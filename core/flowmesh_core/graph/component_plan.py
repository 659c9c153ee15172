"""A compiled component of a service."""

import msgspec

from flowmesh_core.graph.plan import Resources, StepPlan
from flowmesh_core.spec.quantities import mebibytes
from flowmesh_core.spec.workflow import ResourcesSpec


class ComponentPlan(msgspec.Struct, frozen=True):
    """A component of a service.

    Attributes:
        step: the engine as a step of a workflow would have it; its edges are the models.
        replicas_min: the least number of replicas, at least 1; ``replicas_max`` the most.
        calls_max: requests that one runs at once; 0 for what the engine can.
        affinity: the group whose replicas are on one worker together; empty for none.
    """

    name: str
    step: StepPlan
    replicas_min: int = 1
    replicas_max: int = 1
    calls_max: int = 0
    affinity: str = ""


def resources_of(spec: ResourcesSpec) -> Resources:
    """Returns what a component requires of a worker."""
    return Resources(
        memory_mib=mebibytes(spec.memory) if spec.memory else 0,
        gpu_product=tuple(spec.gpu_product),
        tensor_parallel=spec.tensor_parallel or 1,
        labels=spec.labels,
        anti_labels=spec.anti_labels,
    )
