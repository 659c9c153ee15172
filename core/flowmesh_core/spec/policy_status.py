"""The status of a ``FlowMeshCachePolicy``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.status import BY_TYPE, Condition

NAMESPACES_SHOWN = 100


class FlowMeshCachePolicyStatus(SpecModel):
    """What the operator knows about a cache policy."""

    covered: int = Field(default=0, description="How many namespaces of the cluster it is for.")
    namespaces: list[str] = Field(
        default=[],
        max_length=NAMESPACES_SHOWN,
        description=f"The first {NAMESPACES_SHOWN} of them, by name.",
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that was read last."
    )
    epoch: int = Field(default=0, description="The epoch of the leader that wrote this.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted: it is in force; Conflicting: for some of its namespaces another"
        " policy contradicts it, and their workflows are refused.",
        json_schema_extra=BY_TYPE,
    )
