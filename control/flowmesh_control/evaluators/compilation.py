"""What compiling a workflow is: pure functions, called in this process or in a sandboxed one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.matrix import size
from flowmesh_core.graph.plan import Plan
from flowmesh_core.placement.engine_variants import VariantRequest, problem
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.spec.load import raise_problems, read_object, without_echoes
from flowmesh_core.spec.workflow import FlowMeshWorkflow

_CHECKED_STEPS_MAX = 1000
"""Of a larger workflow with wrong fields only these are reported, since compiling takes longer."""


class WorkflowInput(msgspec.Struct, frozen=True):
    """An input from outside of a checked workflow.

    Attributes:
        kind: ``model``, ``adapter`` or ``dataset``; empty for an output, whose reference says it.
        value: where its content is; empty for rows and for a key of a ConfigMap.
        has_rows: whether its rows are in the document.
        output: of a run, as ``RUN/OUTPUT``; empty for another source.
        filled_rows: its rows where parameters were filled in; None where they are as written.
    """

    kind: str
    value: str = ""
    has_rows: bool = False
    output: str = ""
    filled_rows: list[Any] | None = None


class CheckedWorkflow(msgspec.Struct, frozen=True, tag="Checked"):
    """What admission must know of a workflow before it can be compiled.

    Attributes:
        steps: how many there are after expansion; a limit on the time to compile them.
    """

    namespace: str
    inputs: dict[str, WorkflowInput]
    steps: int


class CompileRequest(msgspec.Struct, frozen=True, tag="Compile"):
    """A workflow with what is known of its inputs.

    Attributes:
        document: the workflow as JSON-like values.
        uploads: the reference of every input that is stored, by its name.
        columns: the columns of data sets with their types, by the input's name.
        shapes: all workers, where no others can join: a step that none of them serves is refused.
        seconds: processor time that compiling may take.
    """

    document: dict[str, Any]
    uploads: dict[str, str]
    columns: dict[str, dict[str, str]]
    shapes: tuple[WorkerShape, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CompilerSetup:
    """What workflows are compiled with."""

    catalog: Catalog
    limits: Limits


def parsed(document: Mapping[str, Any], setup: CompilerSetup) -> FlowMeshWorkflow:
    """Returns the workflow of a document.

    Raises:
        SpecError: everything that is wrong with its fields and, in a workflow that is not large,
            with the graph of the others.
    """
    workflow, problems = read_object(document)
    if isinstance(workflow, FlowMeshWorkflow):
        if problems and _steps(workflow) <= _CHECKED_STEPS_MAX:
            problems += without_echoes(_graph_problems(workflow, setup), problems)
        raise_problems(problems)
        return workflow
    raise_problems(problems)
    raise SpecError(
        [Problem("kind", "expected a FlowMeshWorkflow; an administrator sets cache policies")]
    )


def _graph_problems(workflow: FlowMeshWorkflow, setup: CompilerSetup) -> list[Problem]:
    try:
        compile_workflow(workflow, setup.catalog, setup.limits, validate_only=True)
    except SpecError as e:
        return e.problems
    return []


def _steps(workflow: FlowMeshWorkflow) -> int:
    return sum(size(step.matrix) for step in workflow.spec.steps) + len(workflow.spec.inputs)


def checked(workflow: FlowMeshWorkflow) -> CheckedWorkflow:
    """Returns what admission must know of a workflow."""
    inputs = {}
    for name, source in workflow.spec.inputs.items():
        kinds = [k for k in ("model", "adapter", "dataset") if getattr(source, k)]
        kind = kinds[0] if kinds else "dataset"
        value = getattr(source, kind) or ""
        output = source.output or ""
        kind = "" if output else kind
        is_filled = workflow.notes.is_filled(("spec", "inputs", name, "rows"))
        rows = source.rows if is_filled else None
        inputs[name] = WorkflowInput(kind, value, source.rows is not None, output, rows)
    steps = min(_steps(workflow), 2**53)
    return CheckedWorkflow(workflow.metadata.namespace, inputs, steps)


def compiled(request: CompileRequest, setup: CompilerSetup, workflow: FlowMeshWorkflow) -> Plan:
    """Returns the plan of a workflow.

    Args:
        request: what is known of its inputs.
        setup: what it is compiled with.
        workflow: the request's document, parsed.

    Raises:
        SpecError: everything that is wrong with it.
    """
    plan = compile_workflow(
        workflow,
        setup.catalog,
        setup.limits,
        uploads=request.uploads,
        columns=request.columns,
    )
    check_engine_variants(workflow, plan, setup.catalog, request.shapes)
    return plan


def check_engine_variants(
    workflow: FlowMeshWorkflow, plan: Plan, catalog: Catalog, shapes: Sequence[WorkerShape]
) -> None:
    """Refuses steps whose identity fields no worker serves.

    Args:
        workflow: as it was written, for the places of errors.
        plan: the same workflow, compiled.
        catalog: the engine contracts.
        shapes: the workers; empty to refuse nothing.

    Raises:
        SpecError: every such step.
    """
    places = {step.name: f"spec.steps[{i}].with" for i, step in enumerate(workflow.spec.steps)}
    problems = []
    for step in plan.steps:
        contract = catalog.pinned(step.engine, step.contract, step.implementation, step.minor)
        if contract is None or not contract.identity_fields:
            continue
        found = problem(VariantRequest.of(step.engine, step.fields), shapes)
        if found:
            problems.append(Problem(places.get(step.name, step.path), found))
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
