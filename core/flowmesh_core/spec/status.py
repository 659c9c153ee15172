"""The status of a workflow as a custom resource: a projection of constant size.

Written by the operator from the run's state; steps are not in it, so that a run of 100,000 steps
weighs as much on the API server as one of three.
"""

from typing import Any

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from flowmesh_core.spec.fields import Model


class Condition(Model):
    """A standard Kubernetes condition."""

    type: str = Field(description="The condition.")
    status: str = Field(description="True, False or Unknown.")
    reason: str = Field(default="", description="Why, as one word.")
    message: str = Field(default="", description="Why, as a sentence.")
    last_transition_time: str = Field(default="", description="When the status last changed.")
    observed_generation: int = Field(default=0, description="The generation it is about.")


class WorkflowStatus(Model):
    """How far the run is."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    phase: str = Field(default="", description="The run's phase.")
    progress: str = Field(default="", description="Steps ended of all, such as 3/5.")
    hits: int = Field(default=0, description="Steps and chunks that needed no run.")
    cost_usd: str = Field(default="", description="Dollars paid so far.")
    saved_usd: str = Field(default="", description="Dollars that sharing saved.")
    message: str = Field(default="", description="What there is to say, with the remedy.")
    started_at: str = Field(default="", description="When the run began.")
    ended_at: str = Field(default="", description="When the run ended.")
    outputs: dict[str, Any] = Field(default={}, description="The outputs by name.")
    conditions: list[Condition] = Field(default=[], description="Standard conditions.")
    observed_generation: int = Field(default=0, description="The generation last acted upon.")
