"""The status of a pool: of constant size.

The operator writes it and reads back only ``startSeconds``, which is an estimate.
"""

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from flowmesh_core.spec.fields import SpecModel
from flowmesh_core.spec.status import BY_TYPE, Condition

COMPONENTS_SHOWN = 16
DECISIONS_MAX = 10


class WarmComponent(SpecModel):
    """A model or adapter on the pool's workers."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    digest: str = Field(description="Its digest.")
    size_bytes: int = Field(default=0, description="Its size.")
    workers: int = Field(default=0, description="How many workers have it.")


class ScalingDecision(SpecModel):
    """A change of the number of workers."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    time: str = Field(description="When.")
    before: int = Field(description="Workers before it.")
    after: int = Field(description="Desired workers after it.")
    reason: str = Field(description="Why, as a sentence.")


class PoolStatus(SpecModel):
    """The state of the pool."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    desired: int = Field(default=0, description="Desired workers.")
    ready: int = Field(default=0, description="Workers that are connected and take work.")
    busy: int = Field(default=0, description="Workers that run something.")
    backlog_seconds: int = Field(
        default=0, description="Predicted worker-seconds of running and waiting work for this pool."
    )
    start_seconds: int = Field(
        default=0, description="Predicted seconds from requesting a worker until it connects."
    )
    components: list[WarmComponent] = Field(
        default=[], description="Some models and adapters on its workers, the most common first."
    )
    decisions: list[ScalingDecision] = Field(
        default=[], description="The last few changes of its size, newest first."
    )
    conditions: list[Condition] = Field(
        default=[], max_length=8, description="Standard conditions.", json_schema_extra=BY_TYPE
    )
    observed_generation: int = Field(default=0, description="The generation last acted upon.")
    epoch: int = Field(default=0, description="The epoch of the operator that wrote it.")
