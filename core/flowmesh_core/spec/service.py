"""``FlowMeshService``: a model that stays loaded and answers requests, as a document of the API."""

from typing import Any, Literal

from pydantic import Field, model_validator

from flowmesh_core.spec.fields import Name, SpecModel
from flowmesh_core.spec.inputs import InputSpec
from flowmesh_core.spec.metadata import NamespacedMetadata
from flowmesh_core.spec.service_status import FlowMeshServiceStatus
from flowmesh_core.spec.workflow import ResourcesSpec

REPLICAS_MAX = 64
CALLS_MAX = 4096


class ReplicasSpec(SpecModel):
    """How many replicas of a component there are."""

    min: int = Field(
        default=1,
        ge=0,
        le=REPLICAS_MAX,
        description="The least; one is loaded even where this is 0.",
    )
    max: int = Field(default=1, ge=1, le=REPLICAS_MAX, description="The most.")

    @model_validator(mode="after")
    def _ordered(self) -> "ReplicasSpec":
        if self.max < self.min:
            raise ValueError(f"max is {self.max}: expected at least min, which is {self.min}")
        return self


class ComponentSpec(SpecModel):
    """What is loaded and replicated together: an engine with its model."""

    uses: str = Field(min_length=1, max_length=128, description="The engine, such as llm.generate.")
    inputs: dict[Name, str] = Field(
        description="Port of the engine to source, such as model: inputs.base.", max_length=16
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="What the engine is loaded with: dtype, batchInvariant, implementation, and"
        " parameters that all requests share.",
    )
    replicas: ReplicasSpec = Field(default=ReplicasSpec(), description="How many there are.")
    calls_max: int = Field(
        default=0,
        ge=0,
        le=CALLS_MAX,
        description="Requests that one replica runs at once; 0 for what the engine can.",
    )
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What a replica requires of a worker."
    )


class OpenAiSpec(SpecModel):
    """How the service is offered by OpenAI's API."""

    model: str = Field(
        min_length=1, max_length=128, description="The model's name in requests and answers."
    )


class ServiceSpec(SpecModel):
    """What is served."""

    inputs: dict[Name, InputSpec] = Field(
        max_length=16, description="Models from outside, by name; a release pins their content."
    )
    components: dict[Name, ComponentSpec] = Field(
        min_length=1, max_length=1, description="The engine that answers; one for now."
    )
    openai: OpenAiSpec | None = Field(
        default=None, description="The model's name; the service's own name where it is missing."
    )


class FlowMeshService(SpecModel):
    """A model that stays loaded on workers and answers requests."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The API's version.")
    kind: Literal["FlowMeshService"] = Field(description="The kind of object.")
    metadata: NamespacedMetadata = Field(description="Names the object.")
    spec: ServiceSpec = Field(description="What is served.")
    status: FlowMeshServiceStatus | None = Field(
        default=None, description="Written by the operator."
    )
