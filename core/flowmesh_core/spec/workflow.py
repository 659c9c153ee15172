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
    """Weights of the scheduler's utility, each at least 0."""

    alpha: float = Field(ge=0, le=1000, description="Weight of finishing early.")
    beta: float = Field(ge=0, le=1000, description="Weight of low cost.")
    gamma: float = Field(
        ge=0,
        le=1000,
        description="Weight of input locality: of input data that is already on or near the"
        " worker.",
    )


class ResourcesSpec(SpecModel):
    """What a step requires of a worker."""

    memory: MemoryLimit | None = Field(
        default=None,
        description="Device memory (on a CPU, host memory) that the step needs, such as 4Gi;"
        " replaces the engine's own estimate.",
        json_schema_extra=FILLED,
    )
    gpu_product: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="GPU products, one of which the worker must have; any worker if empty.",
        json_schema_extra=FILLED,
    )
    tensor_parallel: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Number of devices over which one copy of the model is split.",
        json_schema_extra=FILLED,
    )
    labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="Labels that the worker must have."
    )
    anti_labels: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="Labels that the worker must not have."
    )


class RetrySpec(SpecModel):
    """How often to try again after a failure of the engine; lost workers do not count."""

    attempts: int = Field(
        default=3, ge=1, le=20, description="Maximum number of attempts.", json_schema_extra=FILLED
    )
    backoff: Duration = Field(
        default="1s",
        description="Wait before the second attempt; it doubles before each further attempt.",
        json_schema_extra=FILLED,
    )


class CacheSpec(SpecModel):
    """When results may be reused."""

    reuse: Literal["always", "run", "never"] | None = Field(
        default=None,
        description="Which results may be reused. always: those of any run; run: only those of this"
        " run; never: none. The default is always, or run for steps that call something outside the"
        " fabric.",
        json_schema_extra=FILLED,
    )
    salt: str = Field(
        default="",
        max_length=256,
        description="A string that is part of the identity of the actions. With another salt, the"
        " same work is executed again.",
    )
    max_age: DurationLimit | None = Field(
        default=None,
        description="Maximum age of reused results, at the time when the run was created.",
        json_schema_extra=FILLED,
    )
    ignored_inputs: list[Name] = Field(
        default_factory=list,
        max_length=64,
        description="Input ports whose content is not part of the action's identity. Such results"
        " stay in the namespace's own scope.",
    )


class StepSpec(SpecModel):
    """A node of the DAG: an engine, the sources of its inputs, and its parameters."""

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
        description="For each input port, its source: inputs.<name>, <step>.<port>,"
        " <step>[name=value].<port>, or <step>[*].<port> for all instances of a matrix, one after"
        " the other; a list of these; {firstOf: [...]} for the first source that was not skipped;"
        " or {from: ..., whenSkipped: absent} (or empty) if the step can run without a source that"
        " was skipped.",
    )
    after: list[str] = Field(
        default_factory=list,
        max_length=256,
        description="Steps that must end before this one begins, although it reads none of their"
        " outputs: <step> or <step>[name=value]. A skipped step counts as ended; a failed one"
        " cancels this step.",
    )
    with_: dict[str, Any] = Field(
        default_factory=dict,
        alias="with",
        description="The engine's parameters and, for engines that run models, dtype,"
        " batchInvariant and implementation. ${params.x} and ${matrix.x} are replaced by their"
        " values; write $${ for a literal ${.",
    )
    matrix: dict[Variable, Annotated[list[Scalar], Field(json_schema_extra=FILLED)]] = Field(
        default_factory=dict,
        max_length=16,
        description="Static fan-out: the step has one instance, such as tune[lr=1e-5], for each"
        " combination of values.",
    )
    when: str = Field(
        default="",
        max_length=4096,
        description="A CEL condition over params, matrix and steps['name'].port.field. If it is"
        " false, the step is skipped.",
    )
    resources: ResourcesSpec = Field(
        default=ResourcesSpec(), description="What the step requires of a worker."
    )
    retry: RetrySpec = Field(
        default=RetrySpec(), description="How often to try again after a failure of the engine."
    )
    cache: CacheSpec = Field(default=CacheSpec(), description="When results may be reused.")
    timeout: DurationLimit | None = Field(
        default=None,
        description="Time limit of one attempt, such as 10m.",
        json_schema_extra=FILLED,
    )
    secrets: list[Name] = Field(
        default_factory=list,
        max_length=16,
        description="Names of the secrets that are sent with each attempt.",
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
        description="External inputs, by name; a step reads one as inputs.<name>.",
        json_schema_extra=key_rule("an input"),
    )
    params: dict[Variable, Any] = Field(
        default_factory=dict,
        description="Parameters, for use as ${params.x} and in conditions: plain values, or"
        " declarations with a type (string, integer, number, boolean, list, object) and optionally"
        " default or required, description, enum, minimum, maximum, pattern, items, maxItems and"
        " schema. References to them are replaced in the fields `with`, when, inputs, outputs,"
        " after, matrix, resources, retry, cache, timeout, budgetUsd and deadline.",
    )
    outputs: dict[Name, str] = Field(
        default_factory=dict,
        max_length=1000,
        description="For each output name, its source, such as vote.rows.",
        json_schema_extra=key_rule("an output"),
    )
    secrets: dict[Name, SecretKey] = Field(
        default_factory=dict,
        max_length=64,
        description="For each secret that inputs and steps name, the Secret of the cluster that"
        " holds it. The user who creates the workflow must have permission to get each Secret. On a"
        " laptop, secrets are read from the environment variables FMESH_SECRET_<NAME>.",
        json_schema_extra=key_rule("a secret"),
    )
    optimize: Optimize | None = Field(
        default=None,
        description="What placement optimizes for; balanced if neither optimize nor weights is"
        " given.",
    )
    weights: WeightsSpec | None = Field(
        default=None, description="The weights of the scheduler's utility, instead of optimize."
    )
    min_trust: TrustLevel = Field(
        default=0,
        description="Minimum trust, 0 to 3, of the pools whose results this run accepts. It can"
        " raise the minimum of the cache policy, but not lower it.",
    )
    budget_usd: UsdLimit | None = Field(
        default=None,
        description='Maximum cost of the run in dollars, in quotes, such as "0.50". Mutable.',
        json_schema_extra=FILLED,
    )
    deadline: DurationLimit | None = Field(
        default=None,
        description="Time after creation by which the run must have ended. Mutable.",
        json_schema_extra=FILLED,
    )
    priority: int = Field(
        default=0,
        ge=-PRIORITY_MAX,
        le=PRIORITY_MAX,
        description="Runs with a higher priority go first within the namespace. Mutable.",
    )
    suspend: bool = Field(
        default=False,
        description="If true, the workflow is accepted, but nothing new is started. Mutable.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="Seconds after the end of the run until the object is deleted from the cluster;"
        " without it, the object stays. Results stay as long as their cache policy says. Mutable."
        " It has no effect on a laptop.",
    )


class FlowMeshWorkflow(SpecModel):
    """A DAG of steps over language models and data. Identical work runs only once."""

    api_version: Literal["flowmesh.dev/v1alpha1"] = Field(description="The version of the API.")
    kind: Literal["FlowMeshWorkflow"] = Field(description="The kind of object.")
    metadata: NamespacedMetadata = Field(description="The object's metadata.")
    spec: WorkflowSpec = Field(description="What to run.")
    status: WorkflowStatus | None = Field(
        default=None, description="Written by the control plane, and never read back."
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
