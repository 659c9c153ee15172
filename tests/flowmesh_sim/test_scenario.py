"""Scenario files: errors name the place and the nearest valid name."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import SpecError
from flowmesh_sim.scenario import read_scenario, scenario_of

LOAD: dict[str, Any] = {"shapes": ["noop-flat"], "runs": 1}
DECAYING = {"kind": "decaying", "perMinute": 1, "toPerMinute": 1}
ROOT = Path(__file__).parent.parent.parent
GOOD: dict[str, Any] = {
    "name": "t",
    "pools": [{"name": "p", "device": "cpu"}],
    "load": [{"shapes": ["noop-flat"], "runs": 1}],
}


def pool(**changes: Any) -> dict[str, Any]:
    return {"pools": [{**GOOD["pools"][0], **changes}]}


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"pools": [{"name": "p", "device": "h10"}]}, "pools[0]", "did you mean 'h100'"),
        ({"load": [{"shapes": ["a-chian"], "runs": 1}]}, "load[0]", "did you mean 'a-chain'"),
        ({"load": [{"shapes": ["a-rag"], "runs": 0}]}, "load[0].runs", "greater than or equal"),
        ({"pool": []}, "pool", "is not a field here"),
        ({"policy": "fito"}, "", "did you mean 'fifo'"),
        ({"faults": [{"kind": "crash"}]}, "faults[0]", "either atS or perHour"),
        ({"faults": [{"kind": "crash", "atS": 1, "pool": "q"}]}, "", "no pool 'q'"),
        ({"facts": {"devices.h100.tdp": 1}}, "", "devices.h100.tdp_w"),
        ({"pools": []}, "", "give at least one"),
        ({"load": [{"shapes": [], "runs": 1}]}, "load[0].shapes", "at least 1 item"),
        ({"load": [{**LOAD, "budgetUsd": float("inf")}]}, "load[0].budgetUsd", "less than"),
        ({"load": [{**LOAD, "arrivals": DECAYING}]}, "load[0].arrivals", "less than perMinute"),
        ({"faults": [{"kind": "crash", "perHour": float("inf")}]}, "perHour", "finite"),
        ({"faults": [{"kind": "engine-errors", "atS": 0, "failure": "x"}]}, "failure", "'engine'"),
        (
            {"pools": [{"name": "p", "device": "cpu", "autoscale": True, "minimum": 2}]},
            "pools[0]",
            "between minimum and maximum",
        ),
        (pool(holdOpen=True), "pools[0].holdOpen", "is not a field here; see docs/simulator.md"),
    ],
)
def test_an_invalid_scenario_is_refused_with_location_and_remedy(
    changes: dict[str, Any], place: str, message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        scenario_of({**GOOD, **changes})
    assert any(place in p.path and message in p.message for p in caught.value.problems)


def test_a_missing_file_or_invalid_yaml_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    with pytest.raises(SpecError, match="cannot be read"):
        read_scenario(path)
    path.write_text("a: [")
    with pytest.raises(SpecError, match="is not YAML"):
        read_scenario(path)
    for text in ("name: 2026-13-45", "{a: " * 3000):
        path.write_text(text)
        with pytest.raises(SpecError, match="is not YAML"):
            read_scenario(path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples/simulate").glob("*.yaml")), ids=str)
def test_every_example_is_a_scenario(path: Path) -> None:
    assert read_scenario(path).name == path.stem
