"""Compiles the Python components of a service: what their host loads.

Components of one service that agree in trust, replicas and resources are loaded by one host, so
that values pass between them by reference; one with ``ownHost`` has a host of its own. They share a
host by having the same parameters, and so the same signature.
"""

from typing import Any

import msgspec

from flowmesh_core.catalog.builtin.code import COMPONENT_MEMORY_MIB
from flowmesh_core.graph.compile_context import CompileContext, Keys
from flowmesh_core.graph.component_plan import ComponentPlan, resources_of
from flowmesh_core.graph.plan import Resources, StepPlan
from flowmesh_core.graph.python_code import class_problem, function_problem, python_problem
from flowmesh_core.graph.service_groups import replica_bounds
from flowmesh_core.spec.quantities import mebibytes
from flowmesh_core.spec.service import ComponentSpec, ServiceSpec

CODE_COMPONENT = "code.component"
"""The engine that hosts them."""
TRUSTED_PARAM = "trusted"
"""Its parameter for code that runs outside the sandbox."""
TRUSTED_CODE_TRUST = 2
"""The least trust of a pool that runs such code, beside what the worker's owner allows."""
_HOST_MIB = 128
"""What a host needs beside the code's own memory."""
_AUTO_MAX = 64
"""The largest batch that is tried where the service gives none."""


def component_hosts(namespace: str, spec: ServiceSpec) -> dict[str, dict[str, Any]]:
    """Returns the parameters of the host of each Python component, by component.

    The namespace is one of them: code of two namespaces never shares a process.
    """
    members: dict[str, dict[str, ComponentSpec]] = {}
    for name, component in spec.components.items():
        if component.python is not None:
            members.setdefault(_host_key(name, component), {})[name] = component
    found = {}
    for components in members.values():
        params = {
            "components": [_loaded(name, one) for name, one in sorted(components.items())],
            "namespace": namespace,
            TRUSTED_PARAM: next(iter(components.values())).trusted,
            "memoryMib": memory_mib(next(iter(components.values()))),
            "onLate": spec.slo.on_late,
        }
        found.update(dict.fromkeys(components, params))
    return found


def python_component(
    scope: CompileContext, name: str, spec: ComponentSpec, params: dict[str, Any]
) -> ComponentPlan | None:
    """Compiles one component.

    Args:
        scope: of the compilation; gets the problems.
        name: of the component.
        spec: of the component.
        params: of its host; see :func:`component_hosts`.
    """
    keys: Keys = ("spec", "components", name)
    contract = scope.catalog.newest(CODE_COMPONENT)
    assert spec.python is not None, "compiled as an engine"
    if spec.python.file and not scope.validate_only:
        text = (
            f"{spec.python.file!r} was not read: give its content as code; `fmesh services"
            " manifest FILE` prints the service so"
        )
        scope.report((*keys, "python", "file"), text)
    _check_code(scope, spec, keys)
    for field in ("inputs", "with_"):
        if getattr(spec, field):
            where = (*keys, field.removesuffix("_"))
            scope.report(where, "a Python component is loaded with its code alone")
    if contract is None:
        scope.report((*keys, "python"), f"no engine {CODE_COMPONENT} is installed")
        return None
    step = StepPlan(
        path=name,
        name=name,
        engine=contract.name,
        contract=contract.version,
        implementation=contract.implementation,
        params=params,
        fields={},
        edges=(),
        resources=_resources(spec),
    )
    return ComponentPlan(name, step, *replica_bounds(spec), spec.calls_max, spec.affinity or "")


def memory_mib(spec: ComponentSpec) -> int:
    """Returns the memory that the code of a component may use."""
    given = mebibytes(spec.resources.memory) if spec.resources.memory else COMPONENT_MEMORY_MIB
    return int(given)


def _resources(spec: ComponentSpec) -> Resources:
    resources = resources_of(spec.resources)
    if not resources.memory_mib:
        return resources
    return msgspec.structs.replace(resources, memory_mib=resources.memory_mib + _HOST_MIB)


def _host_key(name: str, spec: ComponentSpec) -> str:
    shared = (spec.trusted, spec.affinity, spec.replicas, spec.resources, spec.calls_max)
    return f"{name if spec.own_host else ''} {shared!r}"


def _loaded(name: str, spec: ComponentSpec) -> dict[str, Any]:
    assert spec.python is not None, "compiled as an engine"
    return {
        "name": name,
        "code": spec.python.code,
        "function": spec.python.function,
        "batchMax": _AUTO_MAX if spec.batch.max == "auto" else spec.batch.max,
    }


def _check_code(scope: CompileContext, spec: ComponentSpec, keys: Keys) -> None:
    assert spec.python is not None, "compiled as an engine"
    if not spec.python.code:
        return
    if problem := python_problem(spec.python.code):
        scope.report((*keys, "python", "code"), problem)
        return
    code, function = spec.python.code, spec.python.function
    if problem := function_problem(code, function) or class_problem(code, function):
        scope.report((*keys, "python", "function"), problem)
