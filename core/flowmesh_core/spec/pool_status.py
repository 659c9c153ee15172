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

    digest: str = Field(description="The digest of the component.")
    size_bytes: int = Field(default=0, description="The size of the component in bytes.")
    workers: int = Field(default=0, description="The number of workers that have it.")


class ScalingDecision(SpecModel):
    """A change of the number of workers."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    time: str = Field(description="When the decision was made.")
    before: int = Field(description="The number of workers before it.")
    after: int = Field(description="The desired number of workers after it.")
    reason: str = Field(description="The reason, as a sentence.")


class PoolStatus(SpecModel):
    """The state of the pool."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    desired: int = Field(default=0, description="The desired number of workers.")
    ready: int = Field(
        default=0, description="The number of workers that are connected and accept work."
    )
    busy: int = Field(default=0, description="The number of workers that run something.")
    backlog_seconds: int = Field(
        default=0, description="Predicted worker-seconds of running and waiting work for this pool."
    )
    start_seconds: int = Field(
        default=0, description="Predicted seconds from requesting a worker until it connects."
    )
    components: list[WarmComponent] = Field(
        default=[],
        description="Some of the models and adapters on the pool's workers, the most common first.",
    )
    decisions: list[ScalingDecision] = Field(
        default=[], description="The last few changes of the pool's size, newest first."
    )
    conditions: list[Condition] = Field(
        default=[], max_length=8, description="Standard conditions.", json_schema_extra=BY_TYPE
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that was last acted upon."
    )
    epoch: int = Field(default=0, description="The epoch of the operator that wrote this status.")
