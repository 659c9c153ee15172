"""The status of a ``FlowMeshQuota``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.namespaces_status import NamespacesStatus
from flowmesh_core.spec.status import BY_TYPE, Condition


class FlowMeshQuotaStatus(NamespacesStatus):
    """What the operator knows about a quota."""

    covered: int = Field(default=0, description="To how many namespaces of the cluster it applies.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted: it is in force; Overridden: to some of the namespaces that it"
        " selects another quota applies.",
        json_schema_extra=BY_TYPE,
    )
