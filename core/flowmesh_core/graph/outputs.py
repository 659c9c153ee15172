"""The output port that a reference or a condition names, checked against the step's parameters.

A port may exist only with some value of a parameter, so that two instances of one step can have
different outputs.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flowmesh_core.catalog.contract import Choice, EngineContract, Port
from flowmesh_core.catalog.resolved_contract import met, output_ports
from flowmesh_core.errors import IdentityError
from flowmesh_core.graph.compile_context import CompileContext, Keys, StepEntry
from flowmesh_core.identity.coerce import coerce, default_of
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.values import value_text


def find_output(
    scope: CompileContext, entry: StepEntry, paths: Iterable[str], name: str, keys: Keys
) -> Port | None:
    """Returns the port, or None with a problem reported.

    Args:
        scope: the compilation.
        entry: the step that is named.
        paths: its instances that are meant.
        name: the port's name.
        keys: where the reference is.
    """
    contract = entry.contract
    if contract is None:
        return None
    port = contract.output_port(name)
    if port is None:
        hint = did_you_mean(name, [p.name for p in contract.outputs])
        scope.report(keys, f"{entry.spec.uses} has no output {name!r}{hint}")
        return None
    if port.only_with is None:
        return port
    matrices = {i.path: i.matrix for i in entry.instances}
    for path in paths:
        params = _choosing(scope, entry, contract, matrices.get(path, {}))
        if params is not None and not met(port.only_with, params):
            scope.report(keys, _absent(path, contract, port.name, port.only_with, params))
            return None
    return port


def _choosing(
    scope: CompileContext, entry: StepEntry, contract: EngineContract, own: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The values of the parameters that ports depend on; None where one of them is wrong."""
    fill = scope.substitution(entry, own).fill
    wrong: list[str] = []
    params = {}
    for name in {p.only_with[0] for p in contract.outputs if p.only_with is not None}:
        param = contract.param(name)
        if param is None:
            continue
        if name not in entry.spec.with_:
            params[name] = default_of(param)
            continue
        written = {name: entry.spec.with_[name]}
        given = fill(written, lambda _keys, message: wrong.append(message))
        try:
            params[name] = coerce(param, given[name]) if given else default_of(param)
        except IdentityError as e:
            wrong.append(e.message)
    return None if wrong else params


def _absent(
    path: str, contract: EngineContract, port: str, choice: Choice, params: Mapping[str, Any]
) -> str:
    existing = ", ".join(repr(p.name) for p in output_ports(contract, params))
    name, wanted = choice
    has = value_text(params.get(name))
    return (
        f"{path!r} has no output {port!r} with {name}: {has};"
        f" it has {existing or 'none'}; set {name}: {value_text(wanted)}"
    )
