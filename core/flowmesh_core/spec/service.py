"""``FlowMeshService``: what stays loaded and answers requests, as a document of the API.

A service is one model, or several components that are called in stages.
"""

from typing import Any, Literal

from pydantic import Field, model_validator

from flowmesh_core.spec.fields import Memory, Name, SpecModel, Variable
from flowmesh_core.spec.limits import DurationLimit
from flowmesh_core.spec.metadata import NamespacedMetadata
from flowmesh_core.spec.service_inputs import ServiceInputSpec
from flowmesh_core.spec.service_status import COMPONENTS_MAX, FlowMeshServiceStatus
from flowmesh_core.spec.workflow import ResourcesSpec

REPLICAS_MAX = 64
CALLS_MAX = 4096
BATCH_MAX = 1024
STAGES_MAX = 64
ADAPTERS_MAX = 8
"""As many as an engine applies in one step."""
KEY_CHARS_MAX = 256
CODE_CHARS_MAX = 256 * 1024
RATE_MIN, RATE_MAX = 0.0001, 100_000
"""Of expected requests a second."""
CV_MAX = 100
SCALE_MIN, SCALE_MAX = 1.1, 1000
"""Of a target in requests alone, whose measured time moves by a tenth."""


class ReplicasSpec(SpecModel):
    """How many replicas of a component there are."""

    min: int = Field(
        default=1,
        ge=0,
        le=REPLICAS_MAX,
        description="The least number of replicas; one is loaded even where this is 0.",
    )
    max: int = Field(
        default=1, ge=1, le=REPLICAS_MAX, description="The greatest number of replicas."
    )

    @model_validator(mode="after")
    def _ordered(self) -> "ReplicasSpec":
        if self.max < self.min:
            raise ValueError(f"max is {self.max}: expected at least min, which is {self.min}")
        return self


class PythonSpec(SpecModel):
    """A component's own code: a function from a list of calls to a list of results, in order."""

    file: str = Field(
        default="",
        max_length=4096,
        description="Where `fmesh serve` reads the code, such as ./rerank.py, from the service's"
        " own folder; it sends code in its place.",
    )
    code: str = Field(
        default="",
        max_length=CODE_CHARS_MAX,
        description="A Python module that defines the function.",
    )
    function: Variable = Field(
        default="compute",
        description="A function that gets a list of dicts, one a call, and returns a list with one"
        " result each; or a class with a method compute, or with start, step and finish for calls"
        " of several steps, made once a replica.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> "PythonSpec":
        if bool(self.file) == bool(self.code):
            raise ValueError("give file or code, one of them")
        return self


class BatchSpec(SpecModel):
    """How calls of a Python component are batched."""

    max: int | Literal["auto"] = Field(
        default="auto",
        description="The largest batch, 1 to 1024; auto is the smallest near the best measured"
        " throughput.",
    )

    @model_validator(mode="after")
    def _within(self) -> "BatchSpec":
        if self.max != "auto" and not 1 <= self.max <= BATCH_MAX:
            raise ValueError(f"max is {self.max}: expected 1 to {BATCH_MAX}, or auto")
        return self


class ComponentSpec(SpecModel):
    """What is loaded and replicated together: an engine with its model, or Python code."""

    uses: str = Field(
        default="", max_length=128, description="The engine, such as llm.generate; or give python."
    )
    python: PythonSpec | None = Field(default=None, description="The code; or give uses.")
    batch: BatchSpec = Field(
        default=BatchSpec(), description="How calls of a Python component are batched."
    )
    trusted: bool = Field(
        default=False,
        description="Runs a Python component outside the sandbox, on workers that allow it.",
    )
    own_host: bool = Field(
        default=False,
        description="Gives a Python component a process of its own; else those of a service share"
        " one, where values pass by reference.",
    )
    inputs: dict[Name, str] = Field(
        default_factory=dict,
        description="Port of the engine to source, such as model: inputs.base.",
        max_length=16,
    )
    adapters: dict[Name, str] = Field(
        default_factory=dict,
        description="LoRA adapters on the model: name to source, such as german: inputs.german;"
        " requests choose one by MODEL:NAME. Of a service without stages.",
        max_length=ADAPTERS_MAX,
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="What the engine is loaded with: dtype, batchInvariant, implementation, and"
        " parameters that all requests share.",
    )
    replicas: ReplicasSpec = Field(
        default=ReplicasSpec(), description="How many replicas the component has."
    )
    affinity: Name | None = Field(
        default=None,
        description="A group of the service's components: a worker has a replica of each of them,"
        " or none, so that values among them stay on it.",
    )
    key: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="A field of the request, such as request.user: requests with one value of it go"
        " to one replica while it has room.",
    )
    calls_max: int = Field(
        default=0,
        ge=0,
        le=CALLS_MAX,
        description="Requests that one replica runs at once; 0 leaves the number to the engine.",
    )
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What a replica requires of a worker."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "ComponentSpec":
        if bool(self.uses) == (self.python is not None):
            raise ValueError("give uses or python, one of them")
        return self


class StageSpec(SpecModel):
    """One call of a component for each request."""

    name: Name = Field(description="The stage's name, unique in the service; not `request`.")
    component: Name = Field(description="The component that answers.")
    inputs: dict[Variable, str] = Field(
        default_factory=dict,
        max_length=64,
        description="Name to value of a Python component's call: request, request.FIELD, STAGE or"
        " STAGE.FIELD, with its type.",
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="Parameters of the call; in texts {{ request.FIELD }} and {{ STAGE.FIELD }} are"
        " filled in.",
    )
    stream: bool = Field(
        default=False,
        description="Sends an engine's answer as it is made; on one stage that no other reads.",
    )


class RequestSpec(SpecModel):
    """What a request to a service with stages is."""

    schema_: dict[str, Any] = Field(
        default_factory=dict,
        alias="schema",
        description="JSON Schema of the request's body, which the router checks; up to 64 KiB.",
    )


class SloSpec(SpecModel):
    """What replies should keep."""

    latency: DurationLimit | None = Field(
        default=None, description="Time from a request to its reply, such as 4s."
    )
    scale: float | None = Field(
        default=None,
        ge=SCALE_MIN,
        le=SCALE_MAX,
        description="In place of latency: how many times a request alone, as measured, a reply may"
        " take, such as 3; of a service with stages.",
    )
    ttft: DurationLimit | None = Field(
        default=None,
        description="Time from a request to the first event of its streamed answer, such as 1500ms;"
        " of a service without stages whose engine generates.",
    )
    tpot: DurationLimit | None = Field(
        default=None,
        description="Time of each token of a streamed answer after its first event, such as 50ms;"
        " of a service without stages whose engine generates.",
    )
    miss_rate: float = Field(
        default=0.01,
        ge=0.0001,
        le=1,
        description="The share of requests that may take longer, such as 0.01.",
    )
    on_late: Literal["refuse", "demote", "serve"] = Field(
        default="demote",
        description="What becomes of a request that cannot be in time: refuse ends it at once,"
        " demote serves it behind all others, serve as all others.",
    )

    @model_validator(mode="after")
    def _one_target(self) -> "SloSpec":
        if self.latency is not None and self.scale is not None:
            raise ValueError("give latency or scale, one of them")
        return self


class ArrivalsSpec(SpecModel):
    """The requests that the service expects, until 100 were answered: they size its first plans."""

    rate_per_second: float = Field(
        ge=RATE_MIN, le=RATE_MAX, description="Requests a second, in the mean, such as 0.5."
    )
    cv: float = Field(
        default=1,
        ge=0,
        le=CV_MAX,
        description="How uneven they come: the coefficient of variation of the times between them."
        " 0 is a clock, 1 independent requests, more are bursts.",
    )
    peak_per_second: float | None = Field(
        default=None,
        ge=RATE_MIN,
        le=RATE_MAX,
        description="The rate in the busiest minutes; that of the mean without it.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "ArrivalsSpec":
        if self.peak_per_second is not None and self.peak_per_second < self.rate_per_second:
            raise ValueError(
                f"peakPerSecond is {self.peak_per_second:g}: expected at least ratePerSecond, which"
                f" is {self.rate_per_second:g}"
            )
        return self


class RequestLimitsSpec(SpecModel):
    """Limits of requests."""

    max_in_flight: int = Field(
        default=64, ge=1, le=CALLS_MAX, description="Requests that have not ended, at one router."
    )
    timeout: DurationLimit | None = Field(
        default=None, description="The longest that a request may take; 10m without it."
    )
    max_request_bytes: Memory = Field(default="1Mi", description="The largest request.")


class OpenAiSpec(SpecModel):
    """How the service is offered by OpenAI's API."""

    model: str = Field(
        min_length=1, max_length=128, description="The model's name in requests and answers."
    )
    question: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="Of a service with stages: the field of its request that gets the last user"
        " message of a chat, such as request.question.",
    )
    answer: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="Of a service with stages: the field of its reply that answers a chat, such as"
        " reply.text.",
    )


class ServiceSpec(SpecModel):
    """What is served."""

    inputs: dict[Name, ServiceInputSpec] = Field(
        default_factory=dict,
        max_length=16,
        description="Models and data sets from outside, by name; a release pins their content.",
    )
    components: dict[Name, ComponentSpec] = Field(
        min_length=1,
        max_length=COMPONENTS_MAX,
        description="What answers; one engine where there are no stages.",
    )
    stages: list[StageSpec] = Field(
        default_factory=list,
        max_length=STAGES_MAX,
        description="The calls of a request, in any order; each waits for the values that it"
        " names.",
    )
    reply: dict[Name, str] = Field(
        default_factory=dict,
        max_length=64,
        description="Name to value of the reply, such as text: answer.completion.",
    )
    request: RequestSpec = Field(
        default=RequestSpec(), description="What a request is, where there are stages."
    )
    slo: SloSpec = Field(default=SloSpec(), description="What replies should keep.")
    arrivals: ArrivalsSpec | None = Field(
        default=None,
        description="Expected requests: they decide how many replicas there are, between min and"
        " max, before the demand is measured.",
    )
    limits: RequestLimitsSpec = Field(
        default=RequestLimitsSpec(), description="Limits of requests, where there are stages."
    )
    openai: OpenAiSpec | None = Field(
        default=None, description="The model's name; the service's own name where it is missing."
    )


class FlowMeshService(SpecModel):
    """Components that stay loaded on workers and answer requests."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The API's version.")
    kind: Literal["FlowMeshService"] = Field(description="The kind of object.")
    metadata: NamespacedMetadata = Field(description="Names the object.")
    spec: ServiceSpec = Field(description="What is served.")
    status: FlowMeshServiceStatus | None = Field(
        default=None, description="Written by the operator."
    )
