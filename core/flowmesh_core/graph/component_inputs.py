"""Where the models, data sets and adapters come from that a component of a service loads."""

from flowmesh_core.catalog.adapter_ports import adapter_port
from flowmesh_core.catalog.contract import EngineContract, PortKind
from flowmesh_core.graph.compile_context import CompileContext, Keys
from flowmesh_core.graph.plan import Edge
from flowmesh_core.spec.service import ComponentSpec
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.stages.stage_calls import GENERATE

_INPUTS = "inputs."
_IMPLEMENTATION, _VLLM = "implementation", "vllm"


def loaded_edges(
    scope: CompileContext, contract: EngineContract, spec: ComponentSpec, keys: Keys
) -> list[Edge]:
    """Returns the edges of the ports that the engine loads."""
    ports = {p.name: p for p in contract.inputs if p.is_loaded}
    if not ports:
        scope.report(
            (*keys, "uses"), f"{contract.name} loads no model that a service could keep loaded"
        )
    found = []
    for name, source in spec.inputs.items():
        port, where = ports.get(name), (*keys, "inputs", name)
        if port is None:
            hint = _hint_of_adapters(contract, name) or did_you_mean(name, ports)
            scope.report(where, f"{contract.name} loads no {name!r}{hint}")
            continue
        found += _edge(scope, name, port.kind, source, where)
    for missing in [n for n, p in ports.items() if p.required and n not in spec.inputs]:
        scope.report((*keys, "inputs"), f"{contract.name} needs the input {missing!r}")
    return found


def adapter_edges(
    scope: CompileContext, contract: EngineContract, spec: ComponentSpec, keys: Keys
) -> list[Edge]:
    """Returns the edges of the adapters that callers choose from."""
    if not spec.adapters:
        return []
    where: Keys = (*keys, "adapters")
    if not _mixes_adapters(contract):
        scope.report(where, f"{contract.name} cannot load adapters for a service: leave them out")
        return []
    if spec.with_.get(_IMPLEMENTATION, _VLLM) != _VLLM:
        text = f"{spec.with_[_IMPLEMENTATION]} does not serve requests: expected {_VLLM}"
        scope.report((*keys, "with", _IMPLEMENTATION), text)
    found: list[Edge] = []
    for name, source in spec.adapters.items():
        port = adapter_port(name)
        found += _edge(scope, port, PortKind.ADAPTER, source, (*where, name))
    return found


def _mixes_adapters(contract: EngineContract) -> bool:
    has_port = any(p.mixable and p.kind == PortKind.ADAPTER for p in contract.inputs)
    return has_port and contract.name == GENERATE


def _hint_of_adapters(contract: EngineContract, name: str) -> str:
    port = contract.input_port(name)
    if port is None or port.kind != PortKind.ADAPTER or not _mixes_adapters(contract):
        return ""
    return ": name it in adapters, such as adapters: {german: inputs.german}"


def _edge(scope: CompileContext, port: str, kind: PortKind, source: str, where: Keys) -> list[Edge]:
    """Returns the edge from an input of the service; none where there is a problem."""
    name = source.removeprefix(_INPUTS)
    if not source.startswith(_INPUTS) or name not in scope.inputs:
        hint = did_you_mean(name, scope.inputs)
        scope.report(where, f"{source!r} is not an input: expected inputs.NAME{hint}")
        return []
    entry = scope.inputs[name]
    if entry is not None and entry.kind != kind:
        scope.report(where, f"{source} is {_article(entry.kind)}: expected {_article(kind)}")
        return []
    return [] if entry is None else [Edge(port, entry.kind, (entry.source,))]


def _article(kind: str) -> str:
    return f"an {kind}" if kind == PortKind.ADAPTER else f"a {kind}"
