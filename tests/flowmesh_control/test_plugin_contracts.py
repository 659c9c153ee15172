"""Plugins add engine contracts to the catalog; one that fails is named."""

from importlib.metadata import EntryPoint

import pytest

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError

CONTRACT = EngineContract(
    "my.engine", 1, 1, inputs=(), outputs=(Port("metrics", PortKind.METRICS),)
)


def contracts() -> list[EngineContract]:
    return [CONTRACT]


def broken() -> list[EngineContract]:
    raise RuntimeError("no licence")


def nonsense() -> list[str]:
    return ["my.engine"]


def point(function: str) -> EntryPoint:
    return EntryPoint("mine", f"{__name__}:{function}", "flowmesh.contracts")


def test_plugins_add_their_contracts_to_the_built_in_ones() -> None:
    catalog = load_catalog([point("contracts")])
    assert catalog.newest("my.engine") == CONTRACT
    assert catalog.newest("test.noop") is not None


@pytest.mark.parametrize(
    ("function", "message"), [("broken", "no licence"), ("nonsense", "not an EngineContract")]
)
def test_a_plugin_that_fails_is_named(function: str, message: str) -> None:
    with pytest.raises(FlowMeshError, match=message) as caught:
        load_catalog([point(function)])
    assert "plugin mine" in caught.value.where
