"""The status of a ``FlowMeshQuota``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.policy_status import NAMESPACES_SHOWN
from flowmesh_core.spec.status import BY_TYPE, Condition


class FlowMeshQuotaStatus(SpecModel):
    """What the operator knows about a quota."""

    covered: int = Field(default=0, description="To how many namespaces of the cluster it applies.")
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
        description="Accepted: it is in force; Overridden: to some of the namespaces that it"
        " selects another quota applies.",
        json_schema_extra=BY_TYPE,
    )
