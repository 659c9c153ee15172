"""The built-in contracts agree with themselves and with what the worker brings."""

import tomllib
from pathlib import Path

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.contract import Determinism, EngineContract, PortKind, Reduction
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.catalog.identity_fields import IDENTITY_FIELDS
from flowmesh_core.identity.coerce import coerce, default_of
from flowmesh_worker.engines.registry import BUILTIN

ROOT = Path(__file__).parents[3]
ALL = pytest.mark.parametrize("contract", contracts(), ids=lambda c: c.name)


@ALL
def test_every_default_is_a_value_of_its_parameter(contract: EngineContract) -> None:
    for param in contract.params:
        value = default_of(param)
        assert value is None or coerce(param, value) == value


@ALL
def test_names_within_a_contract_are_unique(contract: EngineContract) -> None:
    params = {p.name for p in contract.params}
    assert len(params) == len(contract.params)
    assert not params & set(IDENTITY_FIELDS)
    assert set(contract.identity_fields) <= set(IDENTITY_FIELDS)
    assert {name for group in contract.one_of for name in group} <= params
    assert {c[1:].partition(":")[0] for c in contract.adds_columns if c[0] == "$"} <= params
    assert all(p.only_with is None for p in contract.inputs)
    ports = [p.only_with for p in contract.outputs if p.only_with is not None]
    choices = (
        *ports,
        *contract.external_with,
        *contract.user_code_with,
        *contract.idempotent_with,
    )
    assert {name for name, _ in choices} <= params


@ALL
def test_a_row_wise_contract_names_its_row_ports_and_how_the_others_are_reduced(
    contract: EngineContract,
) -> None:
    if not contract.row_wise:
        assert not contract.row_output
        return
    row_input, row_output = (
        contract.input_port(contract.row_wise),
        contract.output_port(contract.row_output),
    )
    assert row_input is not None
    assert row_input.kind is PortKind.DATASET
    assert row_output is not None
    assert row_output.kind is PortKind.DATASET
    for port in contract.outputs:
        assert (port.kind is PortKind.DATASET) == (port.reduction is Reduction.CONCAT)


@ALL
def test_every_contract_parameter_and_port_is_documented(contract: EngineContract) -> None:
    assert contract.doc
    assert all(p.doc for p in (*contract.params, *contract.inputs, *contract.outputs))


def test_names_and_versions_are_unique() -> None:
    keys = [(c.name, c.version, c.implementation) for c in contracts()]
    assert len(set(keys)) == len(keys)
    assert len(list(builtin_catalog())) == len({c.name for c in contracts()})


def test_the_package_offers_its_contracts_through_the_plugin_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    door = project["entry-points"]["flowmesh.contracts"]["builtin"]
    assert door == f"{contracts.__module__}:{contracts.__name__}"


def test_every_contract_has_an_engine_and_every_engine_a_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "flowmesh.engines" not in project["entry-points"], "the registry is the one list"
    assert set(BUILTIN) == set(builtin_catalog().names())


def test_without_batch_invariance_a_seeded_engine_is_sampled() -> None:
    generate = builtin_catalog().newest("llm.generate")
    sql = builtin_catalog().newest("data.sql")
    assert generate is not None
    assert sql is not None
    assert determinism_of(generate, {}, {"batchInvariant": True}) is Determinism.SEEDED
    assert determinism_of(generate, {}, {"batchInvariant": False}) is Determinism.SAMPLED
    assert determinism_of(sql, {}, {"batchInvariant": False}) is Determinism.EXACT
