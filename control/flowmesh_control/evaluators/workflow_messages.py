"""Messages of the compiler of workflows, as MessagePack in frames."""

from typing import Any

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_control.evaluators.compilation import CheckedWorkflow, CompileRequest
from flowmesh_control.evaluators.condition_messages import EvaluatorReady
from flowmesh_core.graph.plan import Plan, StepPlan


class CheckWorkflow(msgspec.Struct, frozen=True, tag="Check"):
    """Answer with :class:`CheckedWorkflow`, or why there is none."""

    document: dict[str, Any]
    seconds: float


class PlanPart(msgspec.Struct, frozen=True, tag="Part"):
    """The next steps of a plan; they come in parts so that none takes long to decode."""

    steps: tuple[StepPlan, ...]


class EncodedPlanPart(msgspec.Struct, frozen=True, tag="Part"):
    """A :class:`PlanPart` as the child sends it."""

    steps: list[msgspec.Raw]


class PlanEnd(msgspec.Struct, frozen=True, tag="End"):
    """The plan without its steps, after all of them."""

    plan: Plan


class WorkflowRefused(msgspec.Struct, frozen=True, tag="Refused"):
    """Everything that is wrong with the workflow."""

    problems: list[Problem]


class WorkflowTooLarge(msgspec.Struct, frozen=True, tag="TooLarge"):
    """The workflow cannot be compiled within the limits of the child.

    Attributes:
        deep: it is nested too deeply; otherwise it needs too much memory.
    """

    deep: bool


class CompilerFailed(msgspec.Struct, frozen=True, tag="Failed"):
    """An error that no check foresaw."""

    error: str


WorkflowRequest = CheckWorkflow | CompileRequest
WorkflowReply = (
    EvaluatorReady
    | CheckedWorkflow
    | PlanPart
    | PlanEnd
    | WorkflowRefused
    | WorkflowTooLarge
    | CompilerFailed
)
