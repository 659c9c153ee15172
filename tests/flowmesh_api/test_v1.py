"""The package stands alone, and the core's messages, lines and contracts convert to its types."""

import ast
import sys
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_core.machine.world import World
from tests.golden.api import ANSWER_TYPES, CONTENT_ROUTES, NOT_JSON_ROUTES, filled

import flowmesh_api
from flowmesh_api.v1 import routes
from flowmesh_control.loop.store_health import StoreHealth
from flowmesh_control.queries.fleet import FleetQueries
from flowmesh_core.audit.provenance import provenance_of
from flowmesh_core.catalog.builtin import contracts as builtin_contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.protocol.results import Provenance


def test_a_provenance_of_the_core_converts_to_the_same_json() -> None:
    value = msgspec.structs.replace(filled(Provenance), parts=())
    converted = provenance_of(value)
    assert type(converted).__module__.startswith("flowmesh_api.v1.")
    assert msgspec.json.encode(converted) == msgspec.json.encode(value)


def test_a_provenance_of_the_core_is_shown_without_the_attempts_of_its_parts() -> None:
    value = filled(Provenance)
    assert value.parts
    assert b"parts" not in msgspec.json.encode(provenance_of(value))


def test_a_provenance_with_only_defaults_converts_to_the_same_json() -> None:
    assert msgspec.json.encode(provenance_of(Provenance())) == b"{}"


def test_a_conversion_does_not_turn_an_integer_into_a_float() -> None:
    shown = provenance_of(Provenance(started_s=0, ended_s=1))
    assert msgspec.json.encode(shown) == b'{"started_s":0,"ended_s":1}'


@pytest.mark.parametrize("contract", builtin_contracts(), ids=lambda contract: contract.name)
def test_an_offered_engine_is_listed_with_its_contract_and_its_workers(
    contract: EngineContract,
) -> None:
    world = World()
    for name in ("w2", "w1"):
        world.join(name, engines={contract.name: contract.versions})
    health = StoreHealth()
    queries = FleetQueries(
        world.machine.state, Catalog([contract]), health, tuple, lambda: world.now
    )
    expected = {**msgspec.to_builtins(contract), "offered_by": ["w1", "w2"]}
    shown = msgspec.json.encode(queries.offered_engines())
    assert msgspec.json.decode(shown) == [msgspec.json.decode(msgspec.json.encode(expected))]


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
