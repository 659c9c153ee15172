"""The parameters of one step instance: filled in, typed, and checked as far as admission can."""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.foreign_names import foreign_name_hint, foreign_value_hint
from flowmesh_core.catalog.identity_fields import IMPLEMENTATION, identity_field, with_fields
from flowmesh_core.errors import IdentityError
from flowmesh_core.graph.compile_context import CompileContext, Keys, StepEntry
from flowmesh_core.graph.parameter_rules import rule_problems
from flowmesh_core.identity.coerce import coerce, default_of
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.paths import Key
from flowmesh_documents.values import json_size

TENSOR_PARALLEL = "tensorParallel"


def read_params(
    scope: CompileContext, entry: StepEntry, contract: EngineContract, own: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns ``with`` typed by the contract; problems are reported.

    Args:
        scope: the compilation.
        entry: the step.
        contract: its contract.
        own: the instance's matrix values.

    Returns:
        Parameters after defaults, and the identity fields.
    """
    keys = (*entry.keys, "with")
    if scope.full:  # reported when the limit was passed
        params, fields = _defaults(scope, contract)
        return dict(params), dict(fields)
    given, unfilled, origins = _filled(scope, entry, own, keys)
    scope.use_bytes(json_size(given))
    params, fields = (dict(d) for d in _defaults(scope, contract))
    for name, value in given.items():
        param = contract.param(name)
        if name in unfilled:
            continue  # its value is unknown, so the type of the text does not matter
        if param is not None:
            hint = foreign_value_hint(contract.name, name, value)
            origin = origins.get(name, "")
            params[name] = _typed(scope, param, value, (*keys, name), hint, origin)
        elif name in with_fields(contract):
            field, origin = identity_field(contract, name), origins.get(name, "")
            fields[name] = _typed(scope, field, value, (*keys, name), origin=origin)
        else:
            scope.report((*keys, name), _unknown(contract, name))
    _tensor_parallel(scope, entry, contract, fields)
    for name, problem in rule_problems(contract, given, params, fields):
        scope.report((*keys, name) if name else keys, problem)
    return params, fields


def _filled(
    scope: CompileContext, entry: StepEntry, own: Mapping[str, Any], keys: Keys
) -> tuple[dict[str, Any], set[Key], dict[Key, str]]:
    """``with`` filled in, the parameters with an unknown name in them, and what filled others."""
    unfilled: set[Key] = set()

    def report(where: Keys, message: str) -> None:
        unfilled.add(where[len(keys)])
        scope.report(where, message)

    names = scope.substitution(entry, own)
    given: dict[str, Any] = names.fill(entry.spec.with_, report, keys)
    origins = {place[len(keys)]: reference for place, reference in names.places.items()}
    return given, unfilled, origins


def _defaults(
    scope: CompileContext, contract: EngineContract
) -> tuple[dict[str, Any], dict[str, Any]]:
    found = scope.defaults.get(contract.name)
    if found is None:
        params = {p.name: default_of(p) for p in contract.params}
        fields = {f: default_of(identity_field(contract, f)) for f in contract.identity_fields}
        found = scope.defaults[contract.name] = (params, fields)
    return found


def _typed(
    scope: CompileContext, param: Param, value: Any, keys: Keys, hint: str = "", origin: str = ""
) -> Any:
    try:
        return coerce(param, value)
    except IdentityError as e:
        inner = e.where.removeprefix(param.name)
        place = f"in {inner.lstrip('.')}: " if inner else ""
        message = "; ".join(filter(None, (f"{place}{e.message}", e.remedy, hint)))
        scope.report(keys, f"{message} (from {origin})" if origin else message)
        return default_of(param)


def _unknown(contract: EngineContract, name: str) -> str:
    if name == TENSOR_PARALLEL:
        return "tensorParallel is written under resources"
    known = _known_names(contract)
    runs_model = IMPLEMENTATION.name in contract.identity_fields
    if foreign := foreign_name_hint(
        name, known, runs_model=runs_model, trains=contract.name.startswith("train.")
    ):
        return f"{contract.name} has no parameter {name!r}; {foreign}"
    hint = did_you_mean(name, known) if known else "; it takes none"
    return f"{contract.name} has no parameter {name!r}{hint}"


def _known_names(contract: EngineContract) -> list[str]:
    return [*(p.name for p in contract.params), *with_fields(contract)]


def _tensor_parallel(
    scope: CompileContext, entry: StepEntry, contract: EngineContract, fields: dict[str, Any]
) -> None:
    degree = entry.spec.resources.tensor_parallel
    if degree is None:
        return
    if TENSOR_PARALLEL in contract.identity_fields:
        fields[TENSOR_PARALLEL] = degree
    elif degree > 1:
        scope.report(
            (*entry.keys, "resources", TENSOR_PARALLEL),
            f"{contract.name} runs on one device; leave it out",
        )
