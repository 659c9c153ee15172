"""The package stands alone, and the core's messages, lines and contracts convert to its types."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from tests.golden.api import ANSWER_TYPES, CONTENT_ROUTES, NOT_JSON_ROUTES, filled

import flowmesh_api
from flowmesh_api.v1 import routes
from flowmesh_core.accounting.ledger_lines import AttemptLine, HitLine
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.catalog.load import builtin_contracts
from flowmesh_core.fleet.snapshot import Candidate
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.protocol.messages import Component, EngineInstanceState, WorkerShape
from flowmesh_core.protocol.results import Provenance
from flowmesh_core.status import convert

CONVERTERS: dict[type, Callable[[Any], msgspec.Struct]] = {
    AttemptLine: convert.attempt_line,
    Candidate: convert.candidate,
    Component: convert.component,
    EngineInstanceState: convert.engine_instance,
    HitLine: convert.hit_line,
    Provenance: convert.provenance_of,
    UtilityWeights: convert.weights,
    WorkerShape: convert.worker_shape,
}


def without_internals(value: Any) -> Any:
    """Returns a value without what the API does not show: the attempts of a step's parts."""
    return msgspec.structs.replace(value, parts=()) if isinstance(value, Provenance) else value


@pytest.mark.parametrize("kind", CONVERTERS, ids=lambda kind: kind.__name__)
def test_a_value_of_the_core_converts_to_the_same_json(kind: type) -> None:
    value = without_internals(filled(kind))
    converted = CONVERTERS[kind](value)
    assert type(converted).__module__.startswith("flowmesh_api.v1.")
    assert msgspec.json.encode(converted) == msgspec.json.encode(value)


@pytest.mark.parametrize("kind", CONVERTERS, ids=lambda kind: kind.__name__)
def test_a_value_with_only_defaults_converts_to_the_same_json(kind: type) -> None:
    value = least(kind)
    assert msgspec.json.encode(CONVERTERS[kind](value)) == msgspec.json.encode(value)


@pytest.mark.parametrize("kind", CONVERTERS, ids=lambda kind: kind.__name__)
def test_a_converted_value_contains_no_core_structure(kind: type) -> None:
    converted = CONVERTERS[kind](filled(kind))
    assert modules_in(converted) == {"flowmesh_api"}


def test_a_conversion_does_not_turn_an_integer_into_a_float() -> None:
    shown = convert.provenance_of(Provenance(started_s=0, ended_s=1))
    assert msgspec.json.encode(shown) == b'{"started_s":0,"ended_s":1}'


@pytest.mark.parametrize("contract", builtin_contracts(), ids=lambda contract: contract.name)
def test_an_offered_engine_is_listed_with_its_contract_and_its_workers(
    contract: EngineContract,
) -> None:
    expected = {**msgspec.to_builtins(contract), "offered_by": ["w1", "w2"]}
    shown = convert.offered_engine(contract, ["w1", "w2"])
    assert msgspec.json.encode(shown) == msgspec.json.encode(expected)


def test_every_path_has_a_constant() -> None:
    served = {
        route.partition(" ")[2] for route in ANSWER_TYPES.keys() | CONTENT_ROUTES | NOT_JSON_ROUTES
    }
    assert {path for name, path in vars(routes).items() if name.isupper()} == served


def test_the_package_imports_msgspec_and_the_standard_library_only() -> None:
    root = Path(next(iter(flowmesh_api.__path__)))
    allowed = sys.stdlib_module_names | {"flowmesh_api", "msgspec"}
    imported = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert imported >= {"msgspec"}
    assert imported - allowed == set()


def least(kind: type) -> Any:
    """A value of a type with the fields alone that have no default."""
    whole = filled(kind)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType | inspect.DataclassType)
    needed = {f.name: getattr(whole, f.name) for f in info.fields if f.required}
    return kind(**needed)


def modules_in(value: Any) -> set[str]:
    """The packages of the structures in a value."""
    if isinstance(value, list | tuple):
        return set().union(*map(modules_in, value))
    if not isinstance(value, msgspec.Struct):
        return set()
    within = [modules_in(getattr(value, name)) for name in value.__struct_fields__]
    return {type(value).__module__.partition(".")[0]}.union(*within)
