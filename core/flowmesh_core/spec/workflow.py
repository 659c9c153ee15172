"""``FlowMeshWorkflow``: a DAG of steps, as a custom resource or a YAML file."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr

from flowmesh_core.spec.field_notes import FieldNotes
from flowmesh_core.spec.fields import (
    FILLED,
    Duration,
    Name,
    SpecModel,
    TrustLevel,
    Variable,
    cel_rules,
    key_rule,
)
from flowmesh_core.spec.inputs import InputSpec
from flowmesh_core.spec.limits import DurationLimit, MemoryLimit, UsdLimit
from flowmesh_core.spec.metadata import NamespacedMetadata
from flowmesh_core.spec.quantities import NOT_ZERO_RULE
from flowmesh_core.spec.secrets import SecretKey
from flowmesh_core.spec.status import WorkflowStatus

Scalar = Any  # a string, number or boolean; the compiler checks it and names the field's path
PRIORITY_MAX = 1_000_000
ONE_AIM_RULE = "give optimize or weights, not both"
MUTABLE_FIELDS = ("suspend", "priority", "budgetUsd", "deadline", "ttlSecondsAfterFinished")
"""Fields of the spec that may change after creation (amendments in the ledger)."""
PARAMETER_TERMS = ("budgetUsd", "deadline")
"""Those in which a parameter may be filled in, when the workflow is accepted."""
IMMUTABLE_FIELDS = (
    "steps",
    "inputs",
    "params",
    "outputs",
    "secrets",
    "optimize",
    "weights",
    "minTrust",
)
LARGE_FIELDS = ("steps", "inputs")
"""Immutable fields that only the chart's admission policy guards: the schema's rules are evaluated
at every write of a status too, and comparing 18,000 steps costs the API server four seconds."""
Optimize = Literal["cost", "throughput", "latency"]


class WeightsSpec(SpecModel):
    """Coefficients of the scheduler's utility; each at least 0."""

    alpha: float = Field(ge=0, le=1000, description="Weight of an early finish.")
    beta: float = Field(ge=0, le=1000, description="Weight of low cost.")
    gamma: float = Field(ge=0, le=1000, description="Weight of input locality.")


class ResourcesSpec(SpecModel):
    """What a step requires of a worker."""

    memory: MemoryLimit | None = Field(
        default=None,
        description="Memory of the device (of the host, on a CPU), such as 4Gi; replaces the"
        " engine's own estimate.",
        json_schema_extra=FILLED,
    )
    gpu_product: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="GPU products of which the worker must have one; empty for any.",
        json_schema_extra=FILLED,
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Devices that share one copy of the model.",
        json_schema_extra=FILLED,
    )
    labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="Labels that the worker must have."
    )
    anti_labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="Labels that the worker must not have."
    )


class RetrySpec(SpecModel):
    """Limits of the attempts after failures of the engine; lost workers do not count."""

    attempts: int = Field(
        default=3, ge=1, le=20, description="Attempts in all.", json_schema_extra=FILLED
    )
    backoff: Duration = Field(
        default="1s",
        description="Wait before the second attempt; doubled before each further one.",
        json_schema_extra=FILLED,
    )


class CacheSpec(SpecModel):
    """When results are reused."""

    reuse: Literal["always", "run", "never"] | None = Field(
        default=None,
        description="always: across runs; run: within this run; never: not at all. Default always,"
        " and run for engines that touch the outside world.",
        json_schema_extra=FILLED,
    )
    salt: str = Field(
        default="",
        max_length=256,
        description="A text that is hashed into the names of the actions; another text makes them"
        " new actions.",
    )
    max_age: DurationLimit | None = Field(
        default=None,
        description="Reuse only results that were at most this old when the run was created.",
        json_schema_extra=FILLED,
    )
    ignored_inputs: list[Name] = Field(
        default_factory=list,
        max_length=64,
        description="Input ports whose content is not part of the action's name. Such results stay"
        " in the namespace's own scope.",
    )


class StepSpec(SpecModel):
    """A node of the DAG: an engine, where its inputs come from, and its parameters."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(("self.name != 'inputs'", "'inputs' is not a name for a step"))
    )

    name: Name = Field(description="The step's name, unique in the workflow; not `inputs`.")
    uses: str = Field(
        min_length=1,
        max_length=128,
        description="The engine, such as llm.generate, data.sql or train.sft; `fmesh engines` lists"
        " them with their ports and parameters.",
    )
    inputs: dict[Name, Any] = Field(
        default_factory=dict,
        max_length=256,
        description="Input port to source: inputs.<name>, <step>.<port>, <step>[name=value].<port>,"
        " or <step>[*].<port> for all instances of a matrix, one after the other; a list of them;"
        " {firstOf: [...]}, the first that was not skipped; or {from: ..., whenSkipped: absent} (or"
        " empty), where the step is to run without a source that was skipped.",
    )
    after: list[str] = Field(
        default_factory=list,
        max_length=256,
        description="Steps that must have ended before this one begins, though it reads nothing of"
        " them: <step> or <step>[name=value]. A skipped one will do; a failed one cancels this"
        " step.",
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="The engine's parameters, and for model engines dtype, batchInvariant and"
        " implementation. ${params.x} and ${matrix.x} are filled in; $${ is a plain ${.",
    )
    matrix: dict[Variable, Annotated[list[Scalar], Field(json_schema_extra=FILLED)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Static fan-out: one instance of the step for each combination of values, such"
        " as tune[lr=1e-5].",
    )
    when: str = Field(
        default="",
        max_length=4096,
        description="A CEL condition over params, matrix and steps['name'].port.field; a step whose"
        " condition is false is skipped.",
    )
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What the step requires of a worker."
    )
    retry: RetrySpec = Field(
        default=RetrySpec(), description="Limits of the attempts after failures of the engine."
    )
    cache: CacheSpec = Field(default=CacheSpec(), description="When results are reused.")
    timeout: DurationLimit | None = Field(
        default=None,
        description="Time limit of one attempt, such as 10m.",
        json_schema_extra=FILLED,
    )
    secrets: list[Name] = Field(
        default_factory=list, max_length=16, description="Names of secrets sent with each attempt."
    )


def _immutable() -> list[tuple[str, str]]:
    return [
        (
            f"has(self.{name}) == has(oldSelf.{name})"
            f" && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            f"{name} cannot change; submit a new workflow",
        )
        for name in IMMUTABLE_FIELDS
        if name not in LARGE_FIELDS
    ]


def _amended_by_values() -> list[tuple[str, str]]:
    return [
        (
            f"!has(self.{name}) || !self.{name}.contains('${{')"
            f" || (has(oldSelf.{name}) && self.{name} == oldSelf.{name})",
            f"{name} cannot change to a parameter; write the value",
        )
        for name in PARAMETER_TERMS
    ]


def _not_zero() -> list[tuple[str, str]]:
    return [
        (f"!has(self.{name}) || self.{name}.matches('[1-9]|[$]')", f"{name}: {NOT_ZERO_RULE}")
        for name in PARAMETER_TERMS
    ]


class WorkflowSpec(SpecModel):
    """What to run."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            ("!has(self.optimize) || !has(self.weights)", ONE_AIM_RULE),
            *_immutable(),
            *_amended_by_values(),
            *_not_zero(),
        )
    )

    steps: list[StepSpec] = Field(
        min_length=1,
        max_length=100_000,
        description="The steps, in any order; each names an engine and where its inputs come from.",
    )
    inputs: dict[Name, InputSpec] = Field(
        default_factory=dict,
        max_length=1000,
        description="Inputs from outside, by name; a step reads one as inputs.<name>.",
        json_schema_extra=key_rule("an input"),
    )
    params: dict[Variable, Any] = Field(
        default_factory=dict,
        description="Parameters, for ${params.x} and for conditions: plain values, or declarations"
        " with a type (string, integer, number, boolean, list, object) and default or required,"
        " description, enum, minimum, maximum, pattern, items, maxItems, schema. Filled in with,"
        " when, inputs, outputs, after, matrix, resources, retry, cache, timeout, budgetUsd and"
        " deadline.",
    )
    outputs: dict[Name, str] = Field(
        default_factory=dict,
        max_length=1000,
        description="Output name to source, such as vote.rows.",
        json_schema_extra=key_rule("an output"),
    )
    secrets: dict[Name, SecretKey] = Field(
        default_factory=dict,
        max_length=64,
        description="Where a cluster has the secrets that inputs and steps name; whoever creates"
        " the workflow must be allowed to get each Secret. A laptop reads FMESH_SECRET_<NAME> from"
        " the environment.",
        json_schema_extra=key_rule("a secret"),
    )
    optimize: Optimize | None = Field(
        default=None, description="What placement prefers; balanced where neither is given."
    )
    weights: WeightsSpec | None = Field(
        default=None, description="The coefficients themselves, instead of optimize."
    )
    min_trust: TrustLevel = Field(
        default=0,
        description="The least trust of the pools that may make results for this run, 0 to 3; it"
        " can raise what the cache policy asks, not lower it.",
    )
    budget_usd: UsdLimit | None = Field(
        default=None,
        description='The most the run may cost in dollars, in quotes: "0.50". Mutable.',
        json_schema_extra=FILLED,
    )
    deadline: DurationLimit | None = Field(
        default=None,
        description="Time from creation until the run must have ended. Mutable.",
        json_schema_extra=FILLED,
    )
    priority: int = Field(
        default=0,
        ge=-PRIORITY_MAX,
        le=PRIORITY_MAX,
        description="Higher goes first within the namespace. Mutable.",
    )
    suspend: bool = Field(
        default=False, description="Accepted, but nothing new is started. Mutable."
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="Seconds after the end when the object is deleted from its cluster; without"
        " it, it stays. Results stay for the time of their cache policy. Mutable; a laptop has no"
        " objects to delete.",
    )


class FlowMeshWorkflow(SpecModel):
    """A DAG of steps over language models and data, each distinct step of which runs once."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The API's version.")
    kind: Literal["FlowMeshWorkflow"] = Field(description="The kind of object.")
    metadata: NamespacedMetadata = Field(description="Names the object.")
    spec: WorkflowSpec = Field(description="What to run.")
    status: WorkflowStatus | None = Field(
        default=None, description="Written by the control plane, never read back."
    )
    _notes: FieldNotes = PrivateAttr(default_factory=FieldNotes)

    @property
    def notes(self) -> FieldNotes:
        """What ``load`` found out about the fields besides their values."""
        return self._notes

    def with_notes(self, notes: FieldNotes) -> Self:
        """Returns the same workflow with notes."""
        found = self.model_copy()
        found._notes = notes
        return found
