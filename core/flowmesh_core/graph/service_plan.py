"""Compiles a service: its models become imports, as inputs of a workflow, its components typed.

Called by the control plane when a service is applied. All problems are found at once.
"""

from typing import Any

import msgspec

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.engine_settings import FORMAT as ENGINE_SETTINGS
from flowmesh_core.catalog.engine_settings import settings_problems
from flowmesh_core.catalog.identity_fields import WITH_FIELDS, identity_field
from flowmesh_core.errors import IdentityError, SpecError
from flowmesh_core.graph.compile_context import CompileContext, Keys
from flowmesh_core.graph.component_inputs import adapter_edges, loaded_edges
from flowmesh_core.graph.component_plan import ComponentPlan, resources_of
from flowmesh_core.graph.engine_stages import CheckCall, Report
from flowmesh_core.graph.external import read_inputs
from flowmesh_core.graph.limits import Limits
from flowmesh_core.graph.parameters import TENSOR_PARALLEL
from flowmesh_core.graph.plan import Plan, Source, StepPlan
from flowmesh_core.graph.published_inputs import read_outputs, refuse_config_maps
from flowmesh_core.graph.python_components import component_hosts, python_component
from flowmesh_core.graph.service_groups import replica_bounds
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.identity.additions import needed_minor
from flowmesh_core.identity.coerce import coerce, default_of
from flowmesh_core.spec.service import ComponentSpec, FlowMeshService, ServiceSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.spec.workflow import FlowMeshWorkflow, WorkflowSpec
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import ServiceGraph
from flowmesh_core.stages.stage_calls import EMBED

_IMPLEMENTATION, _VLLM = "implementation", "vllm"


class ServicePlan(msgspec.Struct, frozen=True):
    """A compiled service.

    Attributes:
        imports: a plan whose outputs are the models, by the name of the input.
        components: what is loaded.
        model: the name in OpenAI's API.
        graph: its stages; None for a service of one engine.
        arrivals: the requests that it expects; None where the document has none.
    """

    imports: Plan
    components: tuple[ComponentPlan, ...]
    model: str
    graph: ServiceGraph | None = None
    arrivals: ExpectedArrivals | None = None


def compile_service(
    service: FlowMeshService,
    catalog: Catalog,
    uploads: dict[str, str] | None = None,
    check_call: CheckCall = lambda *_: (),
    *,
    validate_only: bool = False,
) -> ServicePlan:
    """Compiles a service.

    Args:
        service: the validated document.
        catalog: the known engines.
        uploads: references to the stored content of ``./`` inputs and of outputs, by name.
        check_call: checks what a stage asks of an engine.
        validate_only: the plan is not run, so content may be missing.

    Raises:
        SpecError: with all problems of the service.
    """
    metadata, spec = service.metadata, service.spec
    own = {n: i for n, i in spec.inputs.items() if i.output is None and i.config_map is None}
    workflow = FlowMeshWorkflow.model_construct(
        metadata=metadata, spec=WorkflowSpec.model_construct(inputs=own, steps=[])
    )
    scope = CompileContext(
        workflow, catalog, Limits(), uploads or {}, {}, validate_only=validate_only
    )
    read_inputs(scope)
    read_outputs(scope, spec.inputs)
    refuse_config_maps(scope, spec.inputs)
    graph = compile_stages(spec, _report_beside_unknown_engines(scope, spec), check_call)
    hosts = component_hosts(metadata.namespace, spec)
    components = tuple(
        _component(scope, name, one)
        if one.python is None
        else python_component(scope, name, one, hosts[name])
        for name, one in spec.components.items()
    )
    if scope.problems:
        raise SpecError(list(scope.problems.values()))
    used = {name: entry for name, entry in scope.inputs.items() if entry is not None}
    outputs: dict[str, tuple[Source, ...]] = {n: (e.source,) for n, e in used.items()}
    steps = tuple(step for entry in used.values() for step in entry.steps)
    imports = Plan(f"service-{metadata.name}", metadata.namespace, steps, outputs)
    model = spec.openai.model if spec.openai is not None else metadata.name
    loaded = tuple(c for c in components if c is not None)
    return ServicePlan(imports, loaded, model, graph, _arrivals(spec))


def _report_beside_unknown_engines(scope: CompileContext, spec: ServiceSpec) -> Report:
    """Returns a report that leaves out what only follows from an engine that is not known."""
    engines = {name: one.uses for name, one in spec.components.items() if one.python is None}
    unknown = {name for name, uses in engines.items() if scope.catalog.newest(uses) is None}
    following: set[Keys] = {
        ("spec", "stages", index, field)
        for index, stage in enumerate(spec.stages)
        if stage.component in unknown
        for field in ("component", "stream")
    }
    if unknown and not spec.stages:
        following |= {("spec", "slo", name) for name in ("ttft", "tpot")}

    def report(keys: Keys, message: str) -> None:
        if keys not in following:
            scope.report(keys, message)

    return report


def _arrivals(spec: ServiceSpec) -> ExpectedArrivals | None:
    given = spec.arrivals
    if given is None:
        return None
    return ExpectedArrivals(given.rate_per_second, given.cv, given.peak_per_second or 0.0)


def _component(scope: CompileContext, name: str, spec: ComponentSpec) -> ComponentPlan | None:
    keys: Keys = ("spec", "components", name)
    contract = scope.catalog.newest(spec.uses)
    if contract is None:
        hint = did_you_mean(spec.uses, scope.catalog.names())
        scope.report((*keys, "uses"), f"no engine {spec.uses!r}{hint}")
        return None
    params, fields = _given(scope, contract, spec, (*keys, "with"))
    step = StepPlan(
        path=name,
        name=name,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        params=params,
        fields=fields,
        edges=(
            *loaded_edges(scope, contract, spec, keys),
            *adapter_edges(scope, contract, spec, keys),
        ),
        resources=resources_of(spec.resources),
        minor=needed_minor(contract, params, fields),
    )
    return ComponentPlan(name, step, *replica_bounds(spec), spec.calls_max, spec.affinity or "")


def _given(
    scope: CompileContext, contract: EngineContract, spec: ComponentSpec, keys: Keys
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what the engine is loaded with: batch-wide parameters and identity fields."""
    shared = {p.name: p for p in contract.params if p.batch_wide}
    named = {f: identity_field(contract, f) for f in contract.identity_fields}
    params = {n: default_of(p) for n, p in shared.items()}
    fields = {n: default_of(p) for n, p in named.items()}
    for name, value in spec.with_.items():
        param = shared.get(name) or (named.get(name) if name in WITH_FIELDS else None)
        if param is None:
            known = [*shared, *(f for f in named if f in WITH_FIELDS)]
            text = (
                f"{contract.name} is not loaded with {name!r}: write it in requests, or in a stage"
            )
            scope.report((*keys, name), f"{text}{did_you_mean(name, known)}")
            continue
        try:
            (params if name in shared else fields)[name] = coerce(param, value)
        except IdentityError as e:
            scope.report((*keys, name), "; ".join(filter(None, (e.message, e.remedy))))
        if param.format == ENGINE_SETTINGS:
            implementation = str(spec.with_.get(_IMPLEMENTATION, _VLLM))
            for setting, problem in settings_problems(params[name], implementation):
                scope.report((*keys, name, setting), problem)
    if contract.name == EMBED:
        _use_pooling_engine(scope, spec, fields, keys)
    if spec.resources.tensor_parallel and TENSOR_PARALLEL in named:
        fields[TENSOR_PARALLEL] = spec.resources.tensor_parallel
    return params, fields


def _use_pooling_engine(
    scope: CompileContext, spec: ComponentSpec, fields: dict[str, Any], keys: Keys
) -> None:
    """Has embeddings of a service made by vLLM: the other implementation answers no calls."""
    if fields.get(_IMPLEMENTATION) == _VLLM:
        return
    if _IMPLEMENTATION in spec.with_:
        text = f"{spec.with_[_IMPLEMENTATION]} does not serve requests: expected {_VLLM}"
        scope.report((*keys, _IMPLEMENTATION), text)
    fields[_IMPLEMENTATION] = _VLLM
