"""What parameters decide of a contract."""

import pytest

from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
)
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.catalog.resolved_contract import met, output_ports, repeatable, runs_user_code

TUNE = EngineContract(
    "test.tune",
    1,
    1,
    (),
    (
        Port("adapter", PortKind.ADAPTER, only_with=("peft", True)),
        Port("model", PortKind.MODEL, only_with=("peft", False)),
        Port("metrics", PortKind.METRICS),
    ),
    (Param("peft", ParamType.BOOLEAN, default=True),),
)
AGENT = EngineContract(
    "test.agent",
    1,
    1,
    (),
    (Port("rows", PortKind.DATASET),),
    (Param("tools", ParamType.LIST, default=[]), Param("method", ParamType.STRING)),
    identity_fields=("batchInvariant",),
    determinism=Determinism.SEEDED,
    idempotent=False,
    external_with=(("tools", "http"),),
    user_code_with=(("tools", "python"),),
    idempotent_with=(("method", "GET"),),
)


def test_a_step_has_the_ports_of_its_parameters_and_the_unconditional_ones() -> None:
    assert [p.name for p in output_ports(TUNE, {"peft": True})] == ["adapter", "metrics"]
    assert [p.name for p in output_ports(TUNE, {"peft": False})] == ["model", "metrics"]


@pytest.mark.parametrize(
    ("tools", "determinism", "user_code"),
    [
        ([], Determinism.SEEDED, False),
        (["python"], Determinism.SEEDED, True),
        (["python", "http"], Determinism.EXTERNAL, True),
        (None, Determinism.SEEDED, False),
    ],
)
def test_an_element_of_a_list_makes_a_step_external_or_need_user_code(
    tools: list[str] | None, determinism: Determinism, user_code: bool
) -> None:
    assert determinism_of(AGENT, {"tools": tools}, {}) is determinism
    assert runs_user_code(AGENT, {"tools": tools}) is user_code


def test_an_external_step_stays_external_whatever_its_batch_invariance() -> None:
    off = {"batchInvariant": False}
    assert determinism_of(AGENT, {"tools": ["http"]}, off) is Determinism.EXTERNAL
    assert determinism_of(AGENT, {"tools": []}, off) is Determinism.SAMPLED


def test_a_parameter_declares_a_call_repeatable() -> None:
    assert repeatable(AGENT, {"method": "GET"})
    assert not repeatable(AGENT, {"method": "POST"})


def test_true_does_not_match_one() -> None:
    assert not met(("peft", True), {"peft": 1})
    assert not met(("n", 1), {"n": [True]})
    assert met(("n", 1), {"n": [1.0]})
