"""The status of a ``FlowMeshService``, as the operator writes it.

Its size does not depend on the number of requests or workers.
"""

from pydantic import Field

from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.status import BY_TYPE, Condition

MOST_REPLICA_REASON_CHARS = 2048
COMPONENTS_MAX = 32


class ComponentReplicas(SpecModel):
    """The replicas of one component."""

    component: str = Field(max_length=63, description="The component.")
    ready: int = Field(default=0, description="Replicas that accept requests.")
    wanted: int = Field(default=0, description="Replicas that there should be.")
    reason: str = Field(
        default="",
        max_length=MOST_REPLICA_REASON_CHARS,
        description="Why replicas are missing or not ready; if the engine failed, its message.",
    )


class FlowMeshServiceStatus(SpecModel):
    """What the operator knows about a service."""

    phase: str = Field(
        default="", description="Pending, Loading, Degraded, Ready, Failed or Refused."
    )
    model: str = Field(default="", description="The model's name in requests.")
    endpoint: str = Field(
        default="",
        description="The base URL for OpenAI clients in pods of the cluster.",
    )
    release: str = Field(default="", description="The set of digests that the replicas load.")
    ready: str = Field(default="", description="Ready and wanted replicas, such as 1/2.")
    replicas: list[ComponentReplicas] = Field(
        default=[], max_length=COMPONENTS_MAX, description="Replicas by component."
    )
    capacity: str = Field(
        default="",
        description="The capacity: requests per second, such as 4.8/s, at which the service's"
        " busiest stage or host is busy all the time. Empty until enough has been measured.",
    )
    message: str = Field(
        default="", max_length=32768, description="Why the service is not ready; empty if it is."
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that was last applied."
    )
    epoch: int = Field(default=0, description="The epoch of the leader that wrote this.")
    conditions: list[Condition] = Field(
        default=[],
        max_length=8,
        description="Accepted, Ready and, with a latency target, MeetsSlo.",
        json_schema_extra=BY_TYPE,
    )
