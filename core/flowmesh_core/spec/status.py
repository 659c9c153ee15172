"""The status of a workflow as a custom resource: a projection of bounded size.

The operator writes it from the run's state and never reads it back. However many steps a run has,
the object has at most ``MOST_ROWS`` of them; all are in a document that ``stepsRef`` names.
"""

from typing import Any

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from flowmesh_core.spec.fields import LIST_KEYS, TIME, SpecModel

MOST_ROWS = 100
"""Steps, and outputs, that a status shows."""
MOST_MESSAGE_CHARS = 1024
"""Characters of a row's message; a condition's may be longer."""


class _Shown(SpecModel):
    """Accepts unknown fields, since another version of the operator may have written them."""

    model_config = ConfigDict(
        extra="ignore", strict=False, alias_generator=to_camel, populate_by_name=True
    )


class Condition(_Shown):
    """A standard Kubernetes condition."""

    type: str = Field(
        max_length=316,
        description="The condition.",
    )
    status: str = Field(description="True, False or Unknown.")
    reason: str = Field(max_length=1024, description="The reason, as one word.")
    message: str = Field(max_length=32768, description="The reason as a sentence, with the remedy.")
    last_transition_time: str = Field(
        description="When the status last changed.", json_schema_extra=TIME
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that the condition describes."
    )


BY_TYPE: JsonDict = {LIST_KEYS: ["type"]}
"""Of a list of conditions: the API server merges them by their type."""


class StepCounts(_Shown):
    """Steps after expansion, by state."""

    total: int = Field(default=0, description="All steps, including imports.")
    pending: int = Field(default=0, description="Steps that wait for their inputs.")
    ready: int = Field(
        default=0, description="Steps that wait for a worker, or whose results are being looked up."
    )
    running: int = Field(default=0, description="Steps that run.")
    completed: int = Field(default=0, description="Steps whose outputs are all published.")
    skipped: int = Field(
        default=0, description="Steps that were skipped because their condition was false."
    )
    failed: int = Field(default=0, description="Steps that failed for good.")
    cancelled: int = Field(
        default=0, description="Steps that were cancelled, or that depend on a failed step."
    )


class OutputStatus(_Shown):
    """An output of the run; the reference is empty where its step was skipped."""

    kind: str = Field(default="", description="dataset, model, adapter, metrics or blob.")
    reference: str = Field(
        default="",
        description="cas:<kind>:<digest>.<key id><mac>, by which another workflow of the namespace"
        " uses it and `fmesh outputs` fetches it.",
    )
    rows: int | None = Field(default=None, description="The number of rows of a data set.")
    bytes: int | None = Field(default=None, description="The size of the output in bytes.")
    value: Any = Field(default=None, description="For metrics: their values, if they are small.")


class StepRow(_Shown):
    """One step, or one instance of a matrix."""

    path: str = Field(description="The step, such as vote or tune[lr=1e-5].")
    uses: str = Field(default="", description="The engine.")
    state: str = Field(
        default="",
        description="PENDING, READY, RUNNING, COMPLETED, SKIPPED, FAILED or CANCELLED.",
    )
    reason: str = Field(
        default="",
        description="Why the step waits or has failed, as one word; `fmesh why` shows more.",
    )
    message: str = Field(
        default="", max_length=MOST_MESSAGE_CHARS, description="The reason as a sentence."
    )
    progress: str = Field(default="", description="Completed chunks out of all, such as 12/40.")
    hits: int = Field(default=0, description="Chunks whose results were reused.")
    cost_usd: str = Field(default="", description="Dollars paid for the step so far.")
    saved_usd: str = Field(default="", description="Dollars that sharing saved.")
    started_at: str | None = Field(
        default=None, description="When its first action began.", json_schema_extra=TIME
    )
    ended_at: str | None = Field(
        default=None, description="When the step ended.", json_schema_extra=TIME
    )


class WorkflowStatus(_Shown):
    """The state of the run."""

    phase: str = Field(
        default="", description="Pending, Running, Suspended, Succeeded, Failed or Cancelled."
    )
    observed_generation: int = Field(
        default=0, description="The generation of the spec that was last acted upon."
    )
    epoch: int = Field(
        default=0,
        description="The epoch of the leader that wrote this status; a status with a lower epoch is"
        " stale.",
    )
    conditions: list[Condition] = Field(
        default=[],
        max_length=16,
        description="Conditions, for example for `kubectl wait --for=condition=Complete`. Accepted:"
        " the workflow was checked, compiled and written; Running: steps are in progress; Complete:"
        " every step completed or was skipped; Failed: the run ended otherwise, or the workflow was"
        " not accepted.",
        json_schema_extra=BY_TYPE,
    )
    message: str = Field(
        default="",
        max_length=32768,
        description="A message with the remedy; if the workflow was not accepted, the output of"
        " `fmesh validate`.",
    )
    progress: str = Field(
        default="", description="Completed or skipped steps out of all, such as 3/5."
    )
    counts: StepCounts | None = Field(default=None, description="Steps by state.")
    actions: int = Field(default=0, description="Number of steps and chunks that are known so far.")
    executed: int = Field(default=0, description="Number of steps and chunks that were executed.")
    hits: int = Field(
        default=0, description="Number of steps and chunks whose results were reused."
    )
    cost_usd: str = Field(default="", description="Dollars paid so far.")
    saved_usd: str = Field(default="", description="Dollars that sharing saved.")
    eta: str | None = Field(
        default=None, description="When the run is predicted to end.", json_schema_extra=TIME
    )
    started_at: str | None = Field(
        default=None, description="When the run was accepted.", json_schema_extra=TIME
    )
    ended_at: str | None = Field(
        default=None, description="When the run ended.", json_schema_extra=TIME
    )
    failed_step: str = Field(default="", description="The step whose failure ended the run.")
    outputs: dict[str, OutputStatus] = Field(
        default={},
        max_length=MOST_ROWS,
        description="The first 100 outputs by name. The document of stepsRef has all of them.",
    )
    steps: list[StepRow] = Field(
        default=[],
        max_length=MOST_ROWS,
        description="Up to 100 steps, first those that failed, run or wait. The document of"
        " stepsRef has all of them.",
    )
    steps_ref: str = Field(
        default="",
        description="cas:<kind>:<digest>.<key id><mac> of a JSON document with every step and"
        " output, where there are more than this object shows.",
    )
