"""The parts of a contract that a step's parameters decide: its output ports, user code, and so on.

A contract states choices, pairs of a parameter and a value. Code that asks about a *step* calls
these functions (or ``determinism_of``) and does not read the contract's fields directly.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from flowmesh_core.catalog.contract import Choice, EngineContract, Metric, ParamType, Port
from flowmesh_core.catalog.verifiers import metric_names

_TYPES = {kind.value: kind for kind in ParamType}
_IN_BRACES = re.compile(r"\{(\w+)\}")


def met(choice: Choice, params: Mapping[str, Any]) -> bool:
    """Whether the parameter has the choice's value, or is a list that contains it."""
    name, wanted = choice
    value = params.get(name)
    if isinstance(value, list | tuple) and not isinstance(wanted, list | tuple):
        return any(_same(v, wanted) for v in value)
    return _same(value, wanted)


def any_met(choices: Collection[Choice], params: Mapping[str, Any]) -> bool:
    """Whether at least one of the choices is met."""
    return bool(choices) and any(met(choice, params) for choice in choices)


def output_ports(contract: EngineContract, params: Mapping[str, Any]) -> tuple[Port, ...]:
    """Returns the output ports of a step with these parameters, in the contract's order."""
    for port in contract.outputs:
        if port.only_with is not None:
            break
    else:
        return contract.outputs
    return tuple(p for p in contract.outputs if p.only_with is None or met(p.only_with, params))


def added_columns(contract: EngineContract, params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns that a step adds to its rows, with their types; "" where not known."""
    found: dict[str, str] = {}
    for declared in contract.adds_columns:
        column, _, kind = declared.partition(":")
        name = params.get(column[1:]) if column.startswith("$") else column
        if name is not None:
            found[str(name)] = kind
    return found


def metrics_of(port: Port, params: Mapping[str, Any]) -> dict[str, ParamType] | None:
    """Returns the metrics of a step's output with their types, or None where any may be there.

    Args:
        port: an output of metrics.
        params: the step's parameters after defaults.
    """
    found: dict[str, ParamType] = {}
    for metric in port.metrics:
        if not _exists(metric, params):
            continue
        match = _IN_BRACES.search(metric.name)
        if match is None:
            found[metric.name] = metric.type
            continue
        entries = _entries(params.get(match[1]), metric.type)
        found |= {metric.name.replace(match[0], name): kind for name, kind in entries.items()}
    return found or None


def _entries(given: Any, kind: ParamType) -> dict[str, ParamType]:
    """The entries of a parameter that make several metrics of one, with the metrics' types."""
    if isinstance(given, Mapping):
        return {str(name): _TYPES.get(str(t), ParamType.ANY) for name, t in given.items()}
    if given and all(isinstance(entry, Mapping) for entry in given):
        return dict.fromkeys(metric_names(given), kind)
    return {str(name): kind for name in given or ()}


def _exists(metric: Metric, params: Mapping[str, Any]) -> bool:
    needed, refused, choice = metric.with_param, metric.without_param, metric.only_with
    return (
        (not needed or bool(params.get(needed)))
        and not (refused and params.get(refused))
        and (choice is None or met(choice, params))
    )


def runs_user_code(contract: EngineContract, params: Mapping[str, Any]) -> bool:
    """Whether a step with these parameters needs a pool that allows user code."""
    return contract.user_code or any_met(contract.user_code_with, params)


def repeatable(contract: EngineContract, params: Mapping[str, Any]) -> bool:
    """Whether a step's outside call, if it makes one, may be repeated after it was begun."""
    return contract.idempotent or any_met(contract.idempotent_with, params)


def _same(value: Any, wanted: Any) -> bool:
    # Python's True equals 1, but a workflow's does not.
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
