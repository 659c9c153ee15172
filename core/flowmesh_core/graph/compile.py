"""Compiles a workflow to what the machine runs: expanded, typed, ordered.

The control plane calls it at admission, and so does the CLI. All problems are found at once.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.missing_engines import missing_engine_hint
from flowmesh_core.errors import SpecError
from flowmesh_core.graph.build import build_steps
from flowmesh_core.graph.compile_context import (
    CompileContext,
    KnownColumns,
    StepDraft,
    StepEntry,
)
from flowmesh_core.graph.edges import read_edges, resolve
from flowmesh_core.graph.external import read_inputs
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.matrix import StepInstance, expand, index, size, value_key
from flowmesh_core.graph.metric_checks import check_metrics
from flowmesh_core.graph.plan import Plan, Source, StepPlan, StepSource, UtilityWeights
from flowmesh_core.graph.references import INPUTS
from flowmesh_core.graph.step_order import read_after
from flowmesh_core.graph.topology import find_cycle, order
from flowmesh_core.graph.unfilled import report_unfilled
from flowmesh_core.spec.quantities import budget, seconds
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import ONE_AIM_RULE, FlowMeshWorkflow, StepSpec, WorkflowSpec
from flowmesh_core.spec.workflow_reader import UNKNOWN_ENGINE, stand_in_name
from flowmesh_documents.values import json_size

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
    columns: KnownColumns | None = None,
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
    report_unfilled(scope)
    drafts = {i.path: _draft(scope, e, i) for e in scope.steps.values() for i in e.instances}
    outputs = _outputs(scope)
    imports = _imports(scope, drafts, outputs)
    steps = build_steps(scope, _order(scope, imports, drafts), imports, drafts)
    check_metrics(scope, steps)
    used, most = json_size(workflow.metadata.labels), limits.labels_bytes
    if used > most:
        text = f"{used} bytes, of at most {most}; write annotations, which no bill repeats"
        scope.report(("metadata", "labels"), text)
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
    for at, written in enumerate(scope.workflow.spec.steps):
        spec, keys = _with_own_name(scope, written, at), ("spec", "steps", at)
        contract = scope.catalog.newest(spec.uses)
        if contract is None and spec.uses != UNKNOWN_ENGINE:
            scope.report((*keys, "uses"), _no_engine(scope, spec.uses))
        total += size(spec.matrix)
        usable = _check_matrix(scope, spec, at)
        partial = usable != spec.matrix or scope.notes.follows((*keys, "matrix"))
        if size(usable) > scope.limits.fan_out or total > scope.limits.steps:
            # One instance is enough to check the step; the limit is a problem already.
            usable, partial = {key: values[:1] for key, values in usable.items()}, True
        instances = expand(spec.name, usable)
        scope.steps[spec.name] = StepEntry(at, spec, contract, instances, index(usable), partial)
    if total > scope.limits.steps:
        scope.report(
            ("spec", "steps"), f"{total} steps after expansion, of at most {scope.limits.steps}"
        )


def _with_own_name(scope: CompileContext, spec: StepSpec, at: int) -> StepSpec:
    """Returns the step; under another name where its own is taken, so that its rest is checked."""
    if spec.name == INPUTS:
        taken = "'inputs' is taken by the inputs from outside"
    elif spec.name in scope.steps:
        taken = f"{spec.name!r} is taken by spec.steps[{scope.steps[spec.name].index}]"
    else:
        return spec
    scope.report(("spec", "steps", at, "name"), taken)
    return spec.model_copy(update={"name": stand_in_name(at)})


def _no_engine(scope: CompileContext, name: str) -> str:
    names = scope.catalog.names()
    missing = missing_engine_hint(name, names)
    hint = f": {missing}" if missing else did_you_mean(name, names)
    return f"no engine {name!r}{hint}"


def _check_matrix(scope: CompileContext, spec: StepSpec, at: int) -> dict[str, list[Any]]:
    """Returns the values that can be used, so that the rest of the step is checked with them."""
    keys = ("spec", "steps", at, "matrix")
    usable: dict[str, list[Any]] = {}
    for name, values in spec.matrix.items():
        seen: set[tuple[bool, Any]] = set()
        good = usable[name] = []
        if not values:
            scope.report((*keys, name), "expected at least one value")
        for i, value in enumerate(values):
            if not isinstance(value, str | int | float):
                scope.report((*keys, name, i), "expected a string, a number or a boolean")
            elif value_key(value) in seen:
                scope.report((*keys, name, i), f"{value!r} is listed twice")
            else:
                seen.add(value_key(value))
                good.append(value)
    if size(spec.matrix) > scope.limits.fan_out:
        scope.report(keys, f"{size(spec.matrix)} instances, of at most {scope.limits.fan_out}")
    return usable


def _draft(scope: CompileContext, entry: StepEntry, instance: StepInstance) -> StepDraft:
    edges = read_edges(scope, entry, instance.matrix)
    after = read_after(scope, entry, instance.matrix) if entry.spec.after else ()
    if not entry.spec.when:
        return StepDraft(entry, instance, edges, after)
    from flowmesh_core.graph.condition_checks import read_condition  # noqa: PLC0415 - CEL is slow to load

    return StepDraft(entry, instance, edges, after, *read_condition(scope, entry, instance))


def _outputs(scope: CompileContext) -> dict[str, tuple[Source, ...]]:
    found = {}
    for name, text in scope.workflow.spec.outputs.items():
        feed = resolve(scope, text, {}, ("spec", "outputs", name))
        if feed is not None:
            found[name] = feed.sources
    return found


def _imports(
    scope: CompileContext,
    drafts: Mapping[str, StepDraft],
    outputs: Mapping[str, tuple[Source, ...]],
) -> dict[str, StepPlan]:
    """The steps that import what is used; an input that nothing reads is not fetched."""
    used = {
        s.step
        for d in drafts.values()
        for e in d.edges
        for s in e.sources
        if isinstance(s, StepSource)
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
    drafts: Mapping[str, StepDraft],
) -> list[str]:
    parents: dict[str, tuple[str, ...]] = {p: s.parents() for p, s in imports.items()}
    for path, draft in drafts.items():
        found = [s.step for e in draft.edges for s in e.sources if isinstance(s, StepSource)]
        parents[path] = tuple(dict.fromkeys([*found, *draft.after, *draft.when_steps]))
    known = {path: tuple(p for p in ps if p in parents) for path, ps in parents.items()}
    ordered, depth = order(known)
    if len(parents) > scope.limits.steps and ("spec", "steps") not in scope.faulty:
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
