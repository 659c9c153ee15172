"""The constants: each has a source, and a scenario may change it."""

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.kernel.constants import Constants, read_constants
from flowmesh_sim.run.simulation import simulate
from flowmesh_sim.scenario import scenario_of


def test_every_constant_has_a_source_and_a_confidence() -> None:
    table = read_constants().table
    assert len(table) > 150
    assert all(f.source and f.confidence in "HMLA" for f in table.values())
    assert any(f.confidence == "A" for f in table.values())


def test_every_value_lies_within_its_range() -> None:
    for fact in read_constants().table.values():
        if fact.range:
            assert fact.range[0] <= fact.value <= fact.range[1], fact.path


def test_a_wrong_path_is_named_with_the_nearest() -> None:
    with pytest.raises(FlowMeshError, match=r"devices\.h100\.tdp_w"):
        read_constants().changed({"devices.h100.tdpw": 1.0})
    with pytest.raises(FlowMeshError, match="h100"):
        read_constants().one("devices", "h10")


def test_a_more_expensive_device_makes_the_same_work_more_expensive() -> None:
    document = {
        "name": "t",
        "pools": [{"name": "p", "device": "cpu"}],
        "load": [{"shapes": ["noop-chain"], "runs": 2, "rows": 4}],
    }
    plain = simulate(scenario_of(document))
    dear = simulate(scenario_of({**document, "facts": {"devices.cpu.price_usd_h": 0.5}}))
    assert dear.usd == pytest.approx(10 * plain.usd, rel=1e-3)


def test_names_with_dots_are_read_whole() -> None:
    facts = read_constants()
    assert isinstance(facts, Constants)
    assert facts.one("models", "llama-3.1-8b").layers == 32
