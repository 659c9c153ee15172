"""The status of a ``FlowMeshCachePolicy``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.namespaces_status import NamespacesStatus
from flowmesh_core.spec.status import BY_TYPE, Condition


class FlowMeshCachePolicyStatus(NamespacesStatus):
    """What the operator knows about a cache policy."""

    covered: int = Field(default=0, description="How many namespaces of the cluster it is for.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted: it is in force; Conflicting: for some of its namespaces another"
        " policy contradicts it, and their workflows are refused.",
        json_schema_extra=BY_TYPE,
    )
