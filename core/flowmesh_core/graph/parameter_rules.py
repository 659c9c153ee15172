"""Which parameters of a step belong together, exclude each other, or need an implementation.

Called by ``parameters`` once for each step instance; every rule but those of single values stands
in the contract.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.identity_fields import IMPLEMENTATION
from flowmesh_core.identity.coerce import default_of
from flowmesh_core.spec.suggestions import nearest

Problem = tuple[str, str]
"""A parameter (empty for ``with`` itself) and what is wrong."""


def rule_problems(
    contract: EngineContract,
    given: Mapping[str, Any],
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> Iterator[Problem]:
    """Yields every rule that a step breaks.

    Args:
        contract: the step's contract.
        given: ``with`` as it is written, references filled in.
        params: typed, after defaults.
        fields: the identity fields, likewise.
    """
    meant = _meant(contract, given)
    present = {p.name for p in contract.params if _is_given(given.get(p.name))}
    counted = present | {name for p in contract.params if p.name in present for name in p.beside}
    for param in contract.params:
        if param.required and param.name not in given and param.name not in meant:
            yield "", f"{contract.name} needs the parameter {param.name!r}: {param.doc}"
        if param.name in present and params[param.name] != default_of(param):
            yield from _own_problems(param, counted, fields)
    yield from _group_problems(contract, present, meant)
    yield from _value_problems(contract, params)


def _is_given(value: Any) -> bool:
    """Whether a parameter has a value; a switch that is off has none."""
    return value is not None and value is not False


def _own_problems(param: Param, counted: set[str], fields: Mapping[str, Any]) -> Iterator[Problem]:
    if param.needs and counted.isdisjoint(param.needs):
        yield param.name, f"{param.name} needs {' or '.join(param.needs)}"
    wanted, got = param.implementations, fields.get(IMPLEMENTATION.name)
    if wanted and got is not None and got not in wanted:
        yield param.name, f"{param.name} needs implementation: {' or '.join(wanted)}"


def _meant(contract: EngineContract, given: Mapping[str, Any]) -> set[str | None]:
    """Returns the parameters that misspelt names stand for, which are reported already."""
    names = [*(p.name for p in contract.params), *contract.identity_fields]
    return {nearest(name, names) for name in given if name not in names}


def _group_problems(
    contract: EngineContract, present: set[str], meant: set[str | None]
) -> Iterator[Problem]:
    for group in contract.one_of:
        by_member = {
            name: [
                p.name
                for p in contract.params
                if p.name in present and (p.name == name or name in p.beside)
            ]
            for name in group
        }
        members = [names for names in by_member.values() if names]
        if len(members) == 1 or (meant.intersection(group) and not members):
            continue
        got = " and ".join(names[0] for names in members) or "none"
        if len(group) == 1:
            yield "", f"{contract.name} needs {_member(contract, group[0])}; got {got}"
        else:
            named = ", ".join(_member(contract, name) for name in group)
            yield "", f"{contract.name} needs exactly one of {named}; got {got}"


def _member(contract: EngineContract, name: str) -> str:
    """Returns a member of a group with what may stand for it."""
    others = [p.name for p in contract.params if name in p.beside]
    return f"{name} (or {' or '.join(others)})" if others else name


def _value_problems(contract: EngineContract, params: Mapping[str, Any]) -> Iterator[Problem]:
    least, most = params.get("minTokens"), params.get("maxTokens")
    if least and most is not None and least > most:
        yield "minTokens", f"minTokens is {least}, more than maxTokens, which is {most}"
    for listed in contract.params:
        if listed.required and listed.items and params.get(listed.name) == []:
            named = ", ".join(map(str, listed.items))
            yield listed.name, f"{listed.name} is empty: name one of {named}"
    if params.get("reasoning") is not None and params.get("jsonSchema") is not None:
        text = "with jsonSchema a completion is JSON from its start, so it has no reasoning"
        yield "reasoning", f"{text}; leave one of the two out"
    taken: dict[str, str] = {}
    for declared in contract.adds_columns:
        column = declared.partition(":")[0]
        source = column.removeprefix("$")
        name = params.get(source) if column.startswith("$") else column
        param = contract.param(source)
        if name in taken and param is not None and param.added:
            yield source, f"{source} and {taken[name]} are both the column {name!r}"
        elif name is not None:
            taken[name] = source
