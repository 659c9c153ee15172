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
        description="Minimum number of replicas. One replica is loaded even if this is 0.",
    )
    max: int = Field(default=1, ge=1, le=REPLICAS_MAX, description="Maximum number of replicas.")

    @model_validator(mode="after")
    def _ordered(self) -> "ReplicasSpec":
        if self.max < self.min:
            raise ValueError(f"max is {self.max}: expected at least min, which is {self.min}")
        return self


class PythonSpec(SpecModel):
    """A component's own code: a function from a list of calls to the list of their results."""

    file: str = Field(
        default="",
        max_length=4096,
        description="The file from which `fmesh serve` reads the code, such as ./rerank.py, in the"
        " folder of the service's file. It sends the content as code.",
    )
    code: str = Field(
        default="",
        max_length=CODE_CHARS_MAX,
        description="A Python module that defines the function.",
    )
    function: Variable = Field(
        default="compute",
        description="The name of a function that gets a list of dicts, one for each call, and"
        " returns a list with a result for each. Or the name of a class with a method compute, or"
        " with start, step and finish for calls of several steps; one object of it is made per"
        " replica.",
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
        description="Maximum batch size, 1 to 1024. auto chooses the smallest size whose measured"
        " throughput is near the best.",
    )

    @model_validator(mode="after")
    def _within(self) -> "BatchSpec":
        if self.max != "auto" and not 1 <= self.max <= BATCH_MAX:
            raise ValueError(f"max is {self.max}: expected 1 to {BATCH_MAX}, or auto")
        return self


class ComponentSpec(SpecModel):
    """What is loaded and replicated together: an engine with its model, or Python code."""

    uses: str = Field(
        default="",
        max_length=128,
        description="The engine, such as llm.generate. Give either uses or python.",
    )
    python: PythonSpec | None = Field(
        default=None, description="The component's own code. Give either python or uses."
    )
    batch: BatchSpec = Field(
        default=BatchSpec(), description="How calls of a Python component are batched."
    )
    trusted: bool = Field(
        default=False,
        description="Whether to run a Python component outside the sandbox, on workers that allow"
        " it.",
    )
    own_host: bool = Field(
        default=False,
        description="Whether a Python component has its own process. Otherwise, the Python"
        " components of a service share one, in which values are passed by reference.",
    )
    inputs: dict[Name, str] = Field(
        default_factory=dict,
        description="For each input port of the engine, its source, such as model: inputs.base.",
        max_length=16,
    )
    adapters: dict[Name, str] = Field(
        default_factory=dict,
        description="LoRA adapters for the model: for each name, its source, such as german:"
        " inputs.german. Requests choose one by MODEL:NAME. Only for services without stages.",
        max_length=ADAPTERS_MAX,
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="Settings with which the engine is loaded: dtype, batchInvariant,"
        " implementation, and parameters that all requests share.",
    )
    replicas: ReplicasSpec = Field(
        default=ReplicasSpec(), description="How many replicas there are."
    )
    affinity: Name | None = Field(
        default=None,
        description="The name of a group of the service's components. A worker has a replica of"
        " each component of a group, or of none, so that values between them stay on the worker.",
    )
    key: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="A field of the request, such as request.user. Requests with the same value of"
        " it go to the same replica while it has room.",
    )
    calls_max: int = Field(
        default=0,
        ge=0,
        le=CALLS_MAX,
        description="Maximum number of concurrent requests of one replica; 0 means as many as the"
        " engine can run.",
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
    component: Name = Field(description="The component to call.")
    inputs: dict[Variable, str] = Field(
        default_factory=dict,
        max_length=64,
        description="Arguments of a Python component's call: for each name, its value: request,"
        " request.FIELD, STAGE or STAGE.FIELD. The value keeps its type.",
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="Parameters of the call. In strings, {{ request.FIELD }} and {{ STAGE.FIELD }}"
        " are replaced by their values.",
    )
    stream: bool = Field(
        default=False,
        description="Whether to stream the engine's answer while it is generated. Allowed for one"
        " stage, whose value no other stage reads.",
    )


class RequestSpec(SpecModel):
    """The form of a request to a service with stages."""

    schema_: dict[str, Any] = Field(
        default_factory=dict,
        alias="schema",
        description="A JSON schema, up to 64 KiB, against which the router checks the body of"
        " requests.",
    )


class SloSpec(SpecModel):
    """Targets for latency."""

    latency: DurationLimit | None = Field(
        default=None, description="Target for the time from a request to its reply, such as 4s."
    )
    scale: float | None = Field(
        default=None,
        ge=SCALE_MIN,
        le=SCALE_MAX,
        description="Instead of latency: the target as a multiple, such as 3, of the measured time"
        " of a request that does not wait for others. Only for services with stages.",
    )
    ttft: DurationLimit | None = Field(
        default=None,
        description="Target for the time from a request to the first event of its streamed answer,"
        " such as 1500ms. Only for services without stages whose engine generates text.",
    )
    tpot: DurationLimit | None = Field(
        default=None,
        description="Target for the time per token of a streamed answer after its first event, such"
        " as 50ms. Only for services without stages whose engine generates text.",
    )
    miss_rate: float = Field(
        default=0.01,
        ge=0.0001,
        le=1,
        description="The share of requests that may miss a target, such as 0.01.",
    )
    on_late: Literal["refuse", "demote", "serve"] = Field(
        default="demote",
        description="What to do with a request that cannot meet the latency target. refuse: end it"
        " at once; demote: serve it after all others; serve: serve it like all others.",
    )

    @model_validator(mode="after")
    def _one_target(self) -> "SloSpec":
        if self.latency is not None and self.scale is not None:
            raise ValueError("give latency or scale, one of them")
        return self


class ArrivalsSpec(SpecModel):
    """The requests that the service expects; they size its plans until 100 were answered."""

    rate_per_second: float = Field(
        ge=RATE_MIN, le=RATE_MAX, description="Mean rate of requests per second, such as 0.5."
    )
    cv: float = Field(
        default=1,
        ge=0,
        le=CV_MAX,
        description="How unevenly requests arrive: the coefficient of variation of the times"
        " between them. 0 means equal intervals, 1 independent requests, more means bursts.",
    )
    peak_per_second: float | None = Field(
        default=None,
        ge=RATE_MIN,
        le=RATE_MAX,
        description="The rate in the busiest minutes; by default the mean rate.",
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
        default=64,
        ge=1,
        le=CALLS_MAX,
        description="Maximum number of unfinished requests at one router.",
    )
    timeout: DurationLimit | None = Field(
        default=None, description="Maximum time that a request may take; 10m by default."
    )
    max_request_bytes: Memory = Field(default="1Mi", description="Maximum size of a request.")


class OpenAiSpec(SpecModel):
    """How the service appears in OpenAI's API."""

    model: str = Field(
        min_length=1, max_length=128, description="The model's name in requests and answers."
    )
    question: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="For a service with stages: the request field that is filled with the last user"
        " message of a chat, such as request.question.",
    )
    answer: str = Field(
        default="",
        max_length=KEY_CHARS_MAX,
        description="For a service with stages: the reply field that is returned as the answer of a"
        " chat, such as reply.text.",
    )


class ServiceSpec(SpecModel):
    """What is served."""

    inputs: dict[Name, ServiceInputSpec] = Field(
        default_factory=dict,
        max_length=16,
        description="External models and data sets, by name. A release pins their content.",
    )
    components: dict[Name, ComponentSpec] = Field(
        min_length=1,
        max_length=COMPONENTS_MAX,
        description="The components by name; a service without stages has exactly one, an engine.",
    )
    stages: list[StageSpec] = Field(
        default_factory=list,
        max_length=STAGES_MAX,
        description="The calls that each request makes, in any order. Each waits for the values"
        " that it names.",
    )
    reply: dict[Name, str] = Field(
        default_factory=dict,
        max_length=64,
        description="The fields of the reply: for each name, its value, such as text:"
        " answer.completion.",
    )
    request: RequestSpec = Field(
        default=RequestSpec(), description="The form of requests, for services with stages."
    )
    slo: SloSpec = Field(default=SloSpec(), description="Targets for latency.")
    arrivals: ArrivalsSpec | None = Field(
        default=None,
        description="Expected requests. They determine the number of replicas, between min and max,"
        " until the demand has been measured.",
    )
    limits: RequestLimitsSpec = Field(
        default=RequestLimitsSpec(), description="Limits of requests, for services with stages."
    )
    openai: OpenAiSpec | None = Field(
        default=None,
        description="The model's name in OpenAI's API; by default the name of the service.",
    )


class FlowMeshService(SpecModel):
    """Components that stay loaded on workers and answer requests."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The version of the API.")
    kind: Literal["FlowMeshService"] = Field(description="The kind of object.")
    metadata: NamespacedMetadata = Field(description="The object's metadata.")
    spec: ServiceSpec = Field(description="What is served.")
    status: FlowMeshServiceStatus | None = Field(
        default=None, description="Written by the operator."
    )
