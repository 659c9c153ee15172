"""The last pass of the compiler: each instance becomes a ``StepPlan``, in topological order.

Because of that order, the columns of data sets can be followed from step to step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.catalog.contract import Determinism, EngineContract
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.catalog.timeouts import timeout_problem
from flowmesh_core.graph.compile_context import Columns, CompileContext, StepEntry
from flowmesh_core.graph.matrix import StepInstance
from flowmesh_core.graph.parameters import read_params
from flowmesh_core.graph.plan import (
    Cache,
    Edge,
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
    drafts: Mapping[str, tuple[StepEntry, StepInstance]],
    edges: Mapping[str, tuple[Edge, ...]],
    conditions: Mapping[str, tuple[str, tuple[str, ...]]],
) -> tuple[StepPlan, ...]:
    """Types every instance and follows the columns; problems are reported.

    Args:
        scope: the compilation.
        ordered: the paths in topological order; those on a cycle may be missing.
        imports: the steps that import inputs, by path.
        drafts: the step and instance of every other path.
        edges: their inputs.
        conditions: their ``when`` and the paths it reads, where they have one.
    """
    columns: dict[Source, Columns] = {
        e.source: e.columns for e in scope.inputs.values() if e is not None
    }
    placed = set(ordered)
    on_cycle = [path for path in drafts if path not in placed]
    out = []
    for path in [*ordered, *on_cycle]:
        if path in imports:
            out.append(imports[path])
            continue
        entry, instance = drafts[path]
        if entry.contract is None:
            continue
        step = _step(scope, entry, instance, entry.contract, edges[path], conditions.get(path))
        _follow(scope, entry, entry.contract, step, columns)
        out.append(step)
    return tuple(out)


def _step(
    scope: CompileContext,
    entry: StepEntry,
    instance: StepInstance,
    contract: EngineContract,
    edges: tuple[Edge, ...],
    condition: tuple[str, tuple[str, ...]] | None,
) -> StepPlan:
    spec = entry.spec
    params, fields = read_params(scope, entry, contract, instance.matrix)
    when, when_steps = condition or ("", ())
    given = spec.model_fields_set
    return StepPlan(
        path=instance.path,
        name=spec.name,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        params=params,
        fields=fields,
        edges=edges,
        when=when,
        when_steps=when_steps,
        matrix=instance.matrix,
        resources=_resources(spec.resources) if "resources" in given else _RESOURCES,
        retry=_retry(spec.retry) if "retry" in given else _RETRY,
        cache=_cache(scope, entry, contract, params, fields),
        timeout_s=_timeout_s(scope, entry, contract),
        secrets=_secrets(scope, spec, contract, params),
        minor=needed_minor(contract, params, fields),
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
                f"{entry.spec.uses} works chunk by chunk, and only the content of a chunk of"
                f" {port!r} identifies it; leave out another input",
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
        check_params,
        output_columns,
    )

    inputs: dict[str, Columns] = dict.fromkeys(entry.spec.inputs)
    inputs |= {e.port: _joined([columns.get(s) for s in e.sources]) for e in step.edges}
    texts = _texts(scope, contract, step)
    keys = (*entry.keys, "with")
    check_params(scope, contract, step.params, step.fields, inputs, texts, keys)
    if contract.row_output:
        source = StepSource(step.path, contract.row_output)
        columns[source] = output_columns(contract, step.params, inputs)
        added = (step.params.get(c.removeprefix("$"), c) for c in contract.adds_columns)
        scope.texts[source] = texts - frozenset(map(str, added))


def _texts(scope: CompileContext, contract: EngineContract, step: StepPlan) -> frozenset[str]:
    """The columns of the row port that are known to hold texts, in all of its sources."""
    ports = [e for e in step.edges if e.port == contract.row_port]
    found = [scope.texts.get(s, frozenset()) for e in ports for s in e.sources]
    return frozenset.intersection(*found) if found else frozenset()


def _worth_checking(spec: StepSpec, contract: EngineContract) -> bool:
    return bool(contract.row_output) or any(
        p.name in spec.with_ and (p.template or p.columns or p.format) for p in contract.params
    )


def _joined(parts: Sequence[Columns]) -> Columns:
    """The columns of a concatenation: of any of its parts, where all are known."""
    known = [p for p in parts if p is not None]
    return frozenset().union(*known) if known and len(known) == len(parts) else None
