"""The status of a ``FlowMeshQuota``, as the operator writes it."""

from pydantic import Field

from flowmesh_core.spec.namespaces_status import NamespacesStatus
from flowmesh_core.spec.status import BY_TYPE, Condition


class FlowMeshQuotaStatus(NamespacesStatus):
    """What the operator knows about a quota."""

    covered: int = Field(
        default=0, description="The number of namespaces in the cluster to which the quota applies."
    )
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted: the quota is in force; Overridden: another quota applies to some of"
        " the namespaces that it selects.",
        json_schema_extra=BY_TYPE,
    )
