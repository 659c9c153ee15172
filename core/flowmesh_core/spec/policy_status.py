"""The status of a ``FlowMeshCachePolicy``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.namespaces_status import NamespacesStatus
from flowmesh_core.spec.status import BY_TYPE, Condition


class FlowMeshCachePolicyStatus(NamespacesStatus):
    """What the operator knows about a cache policy."""

    covered: int = Field(
        default=0,
        description="The number of namespaces in the cluster to which the policy applies.",
    )
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted: the policy is in force; Conflicting: another policy contradicts it"
        " for some of its namespaces, and workflows of those are refused.",
        json_schema_extra=BY_TYPE,
    )
