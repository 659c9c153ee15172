"""The last pass of the compiler: each instance becomes a ``StepPlan``, in topological order.

Because of that order, the columns of data sets can be followed from step to step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.catalog.contract import ROWS, Determinism, EngineContract
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.catalog.timeouts import timeout_problem
from flowmesh_core.graph.compile_context import (
    Columns,
    CompileContext,
    EmptyRows,
    StepDraft,
    StepEntry,
)
from flowmesh_core.graph.input_columns import (
    inputs_without_rows,
    joined_columns,
    ports_without_rows,
    with_columns,
)
from flowmesh_core.graph.parameters import read_params
from flowmesh_core.graph.plan import (
    Cache,
    Resources,
    Retry,
    Source,
    StepPlan,
    StepSource,
)
from flowmesh_core.identity.additions import needed_minor
from flowmesh_core.spec.quantities import mebibytes, seconds
from flowmesh_core.spec.secrets import with_place
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import ResourcesSpec, RetrySpec, StepSpec

_EXTERNAL = Determinism.EXTERNAL
_RESOURCES, _RETRY = Resources(), Retry()


def build_steps(
    scope: CompileContext,
    ordered: Sequence[str],
    imports: Mapping[str, StepPlan],
    drafts: Mapping[str, StepDraft],
) -> tuple[StepPlan, ...]:
    """Types every instance and follows the columns; problems are reported.

    Args:
        scope: the compilation.
        ordered: the paths in topological order; those on a cycle may be missing.
        imports: the steps that import inputs, by path.
        drafts: every other step, by path.
    """
    columns = scope.rows
    columns |= {e.source: e.columns for e in scope.inputs.values() if e is not None}
    scope.without_rows |= inputs_without_rows(scope)
    placed = set(ordered)
    on_cycle = [path for path in drafts if path not in placed]
    out = []
    for path in [*ordered, *on_cycle]:
        if path in imports:
            out.append(imports[path])
            continue
        draft = drafts[path]
        contract = draft.entry.contract
        if contract is None:
            continue
        step = _step(scope, draft, contract, columns)
        _follow(scope, draft.entry, contract, step, columns)
        out.append(step)
    return tuple(out)


def _step(
    scope: CompileContext,
    draft: StepDraft,
    contract: EngineContract,
    columns: Mapping[Source, Columns],
) -> StepPlan:
    entry, instance = draft.entry, draft.instance
    spec = entry.spec
    params, fields = read_params(scope, entry, contract, instance.matrix)
    given = spec.model_fields_set
    return StepPlan(
        path=instance.path,
        name=spec.name,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        params=params,
        fields=fields,
        edges=with_columns(scope, entry, draft.edges, columns),
        when=draft.when,
        when_steps=draft.when_steps,
        matrix=instance.matrix,
        resources=_resources(spec.resources) if "resources" in given else _RESOURCES,
        retry=_retry(spec.retry) if "retry" in given else _RETRY,
        cache=_cache(scope, entry, contract, params, fields),
        timeout_s=_timeout_s(scope, entry, contract),
        secrets=_secrets(scope, spec, contract, params),
        minor=needed_minor(contract, params, fields),
        after=draft.after,
    )


def _timeout_s(scope: CompileContext, entry: StepEntry, contract: EngineContract) -> float:
    given_s = seconds(entry.spec.timeout) if entry.spec.timeout else 0.0
    if problem := timeout_problem(contract, given_s):
        scope.report((*entry.keys, "timeout"), problem)
    return given_s


def _secrets(
    scope: CompileContext, spec: StepSpec, contract: EngineContract, params: Mapping[str, Any]
) -> tuple[str, ...]:
    """The secrets that the step lists, and those that its parameters name."""
    named = [params.get(p.name) for p in contract.params if p.format == "secret"]
    names = dict.fromkeys([*spec.secrets, *(str(n) for n in named if n is not None)])
    return tuple(with_place(name, scope.workflow.spec.secrets) for name in names)


def _resources(spec: ResourcesSpec) -> Resources:
    return Resources(
        memory_mib=mebibytes(spec.memory) if spec.memory else 0,
        gpu_product=tuple(spec.gpu_product),
        tensor_parallel=spec.tensor_parallel or 1,
        labels=spec.labels,
        anti_labels=spec.anti_labels,
    )


def _retry(spec: RetrySpec) -> Retry:
    return Retry(attempts=spec.attempts, backoff_s=seconds(spec.backoff))


def _cache(
    scope: CompileContext,
    entry: StepEntry,
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> Cache:
    spec = entry.spec.cache
    for i, port in enumerate(spec.ignored_inputs):
        if port not in entry.spec.inputs:
            scope.report(
                (*entry.keys, "cache", "ignoredInputs", i),
                f"no input {port!r} here{did_you_mean(port, entry.spec.inputs)}",
            )
        elif port == contract.row_wise:
            scope.report(
                (*entry.keys, "cache", "ignoredInputs", i),
                f"{port!r} cannot be ignored: {entry.spec.uses} works chunk by chunk, and an action"
                f" is named by its chunk of {port!r}; leave it out",
            )
    external = determinism_of(contract, params, fields) is _EXTERNAL
    return Cache(
        reuse=spec.reuse or ("run" if external else "always"),
        salt=spec.salt,
        max_age_s=seconds(spec.max_age) if spec.max_age else 0.0,
        ignored_inputs=tuple(spec.ignored_inputs),
    )


def _follow(
    scope: CompileContext,
    entry: StepEntry,
    contract: EngineContract,
    step: StepPlan,
    columns: dict[Source, Columns],
) -> None:
    """Checks what needs the columns of the inputs, and records those of the output."""
    if not _worth_checking(entry.spec, contract):
        return
    from flowmesh_core.graph.columns import (  # noqa: PLC0415 - Jinja is slow to load
        SQL,
        check_params,
        output_columns,
        query_columns,
    )

    keys = (*entry.keys, "with")
    inputs: dict[str, Columns] = dict.fromkeys(entry.spec.inputs)
    inputs |= {e.port: joined_columns(e, columns) for e in step.edges}
    check_params(scope, contract, step, inputs, keys)
    bare = {} if entry.spec.when else ports_without_rows(scope, step)
    if contract.row_output and not scope.has_problem(entry, "with"):
        source = StepSource(step.path, contract.row_output)
        columns[source] = output_columns(contract, step.params, inputs)
        if (rows := bare.get(contract.row_wise)) is not None:
            added = output_columns(contract, step.params, {contract.row_wise: rows.columns})
            scope.without_rows[source] = EmptyRows(rows.origin, added)
    for param in contract.params:
        query = step.params[param.name] if param.format == SQL else None
        if query is not None:
            found = query_columns(scope, query, inputs, bare, (*keys, param.name))
            columns[StepSource(step.path, ROWS)] = found


def _worth_checking(spec: StepSpec, contract: EngineContract) -> bool:
    return bool(contract.row_output) or any(
        p.name in spec.with_ and (p.template or p.columns or p.format) for p in contract.params
    )
