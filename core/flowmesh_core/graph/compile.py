"""Compiles a workflow to what the machine runs: expanded, typed, ordered.

The control plane calls it at admission, and so does the CLI. All problems are found at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.build import build_steps
from flowmesh_core.graph.compile_context import CompileContext, StepEntry
from flowmesh_core.graph.edges import read_edges, resolve
from flowmesh_core.graph.external import read_inputs
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.matrix import Index, StepInstance, expand, index, size, value_key
from flowmesh_core.graph.plan import Edge, Plan, Source, StepPlan, StepSource, UtilityWeights
from flowmesh_core.graph.references import INPUTS
from flowmesh_core.graph.topology import find_cycle, order
from flowmesh_core.spec.load import UNKNOWN_ENGINE
from flowmesh_core.spec.quantities import budget, seconds
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import ONE_AIM_RULE, FlowMeshWorkflow, StepSpec, WorkflowSpec

WEIGHTS = {
    "cost": UtilityWeights(0.25, 1.0, 0.5),
    "throughput": UtilityWeights(1.0, 0.25, 0.5),
    "latency": UtilityWeights(1.0, 0.1, 0.25),
}
"""The weights of each value of ``optimize``."""

_NO_LIMITS_GIVEN = Limits()


def compile_workflow(
    workflow: FlowMeshWorkflow,
    catalog: Catalog,
    limits: Limits = _NO_LIMITS_GIVEN,
    *,
    uploads: Mapping[str, str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    validate_only: bool = False,
) -> Plan:
    """Compiles a workflow.

    Args:
        workflow: the validated object.
        catalog: the known engines.
        limits: of its size.
        uploads: the ``cas:`` reference of every input that the caller has stored (rows written in
            the file, and ``./`` paths), by the input's name.
        columns: the columns of data sets that the caller has read, by the input's name.
        validate_only: whether to put a placeholder where an upload is missing; such a plan must not
            be run.

    Returns:
        The plan.

    Raises:
        SpecError: with all problems of the workflow.
    """
    scope = CompileContext(workflow, catalog, limits, uploads or {}, columns or {}, validate_only)
    read_inputs(scope)
    _read_steps(scope)
    drafts = {i.path: (e, i) for e in scope.steps.values() for i in e.instances}
    edges = {path: read_edges(scope, e, i.matrix) for path, (e, i) in drafts.items()}
    conditions = {path: _condition(scope, e, i) for path, (e, i) in drafts.items() if e.spec.when}
    outputs = _outputs(scope)
    imports = _imports(scope, edges, outputs)
    ordered = _order(scope, imports, edges, {p: c[1] for p, c in conditions.items()})
    steps = build_steps(scope, ordered, imports, drafts, edges, conditions)
    spec = workflow.spec
    if spec.optimize and spec.weights:
        scope.report(("spec", "weights"), ONE_AIM_RULE)
    if scope.problems:
        raise SpecError(list(scope.problems.values()))
    return Plan(
        name=workflow.metadata.name,
        namespace=workflow.metadata.namespace,
        steps=steps,
        outputs=outputs,
        params=spec.params,
        weights=_weights(spec),
        priority=spec.priority,
        budget_nanousd=budget(spec.budget_usd) if spec.budget_usd else 0,
        deadline_s=seconds(spec.deadline) if spec.deadline else 0.0,
        suspend=spec.suspend,
        min_trust=spec.min_trust,
    )


def _weights(spec: WorkflowSpec) -> UtilityWeights:
    if spec.weights is not None:
        return UtilityWeights(spec.weights.alpha, spec.weights.beta, spec.weights.gamma)
    return WEIGHTS[spec.optimize] if spec.optimize else UtilityWeights()


def _read_steps(scope: CompileContext) -> None:
    """Reads names, engines and instances of all steps, within the limits."""
    total = 0
    for at, spec in enumerate(scope.workflow.spec.steps):
        keys = ("spec", "steps", at)
        if spec.name == INPUTS:
            scope.report((*keys, "name"), "'inputs' is taken by the inputs from outside")
            continue
        if spec.name in scope.steps:
            first = scope.steps[spec.name].index
            scope.report((*keys, "name"), f"{spec.name!r} is taken by spec.steps[{first}]")
            continue
        contract = scope.catalog.newest(spec.uses)
        if contract is None and spec.uses != UNKNOWN_ENGINE:
            hint = did_you_mean(spec.uses, scope.catalog.names())
            scope.report((*keys, "uses"), f"no engine {spec.uses!r}{hint}")
        total += size(spec.matrix)
        instances: list[StepInstance] = []
        by_value: Index = {}
        if _check_matrix(scope, spec, at) and total <= scope.limits.steps:
            instances, by_value = expand(spec.name, spec.matrix), index(spec.matrix)
        scope.steps[spec.name] = StepEntry(at, spec, contract, instances, by_value)
    if total > scope.limits.steps:
        scope.report(
            ("spec", "steps"), f"{total} steps after expansion, of at most {scope.limits.steps}"
        )


def _check_matrix(scope: CompileContext, spec: StepSpec, at: int) -> bool:
    keys = ("spec", "steps", at, "matrix")
    before = len(scope.problems)
    for name, values in spec.matrix.items():
        seen: set[tuple[bool, Any]] = set()
        if not values:
            scope.report((*keys, name), "expected at least one value")
        for i, value in enumerate(values):
            if not isinstance(value, str | int | float):
                scope.report((*keys, name, i), "expected a string, a number or a boolean")
            elif value_key(value) in seen:
                scope.report((*keys, name, i), f"{value!r} is listed twice")
            else:
                seen.add(value_key(value))
    if size(spec.matrix) > scope.limits.fan_out:
        scope.report(keys, f"{size(spec.matrix)} instances, of at most {scope.limits.fan_out}")
    return len(scope.problems) == before


def _condition(
    scope: CompileContext, entry: StepEntry, instance: StepInstance
) -> tuple[str, tuple[str, ...]]:
    from flowmesh_core.graph.condition_checks import read_condition  # noqa: PLC0415 - CEL is slow to load

    return read_condition(scope, entry, instance)


def _outputs(scope: CompileContext) -> dict[str, tuple[Source, ...]]:
    found = {}
    for name, text in scope.workflow.spec.outputs.items():
        feed = resolve(scope, text, {}, ("spec", "outputs", name))
        if feed is not None:
            found[name] = feed.sources
    return found


def _imports(
    scope: CompileContext,
    edges: Mapping[str, tuple[Edge, ...]],
    outputs: Mapping[str, tuple[Source, ...]],
) -> dict[str, StepPlan]:
    """The steps that import what is used; an input that nothing reads is not fetched."""
    used = {
        s.step for es in edges.values() for e in es for s in e.sources if isinstance(s, StepSource)
    }
    used |= {s.step for sources in outputs.values() for s in sources if isinstance(s, StepSource)}
    return {
        step.path: step
        for entry in scope.inputs.values()
        if entry is not None and isinstance(entry.source, StepSource) and entry.source.step in used
        for step in entry.steps
    }


def _order(
    scope: CompileContext,
    imports: Mapping[str, StepPlan],
    edges: Mapping[str, tuple[Edge, ...]],
    when: Mapping[str, tuple[str, ...]],
) -> list[str]:
    parents: dict[str, tuple[str, ...]] = {p: s.parents() for p, s in imports.items()}
    for path, es in edges.items():
        found = [s.step for e in es for s in e.sources if isinstance(s, StepSource)]
        parents[path] = tuple(dict.fromkeys([*found, *when.get(path, ())]))
    known = {path: tuple(p for p in ps if p in parents) for path, ps in parents.items()}
    ordered, depth = order(known)
    if len(parents) > scope.limits.steps:
        scope.report(("spec", "steps"), f"{len(parents)} steps, of at most {scope.limits.steps}")
    if len(ordered) < len(parents):
        cycle = find_cycle(known, ordered)
        entry = next(e for e in scope.steps.values() for i in e.instances if i.path == cycle[0])
        scope.report(entry.keys, f"the steps wait for each other: {' → '.join(cycle)}")
    elif depth > scope.limits.depth:
        scope.report(
            ("spec", "steps"), f"{depth} steps one after the other, of at most {scope.limits.depth}"
        )
    return ordered
