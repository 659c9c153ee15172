"""The scenarios are what was recorded, and name nothing that they do not have."""

from collections.abc import Iterator

import pytest
from tests.golden.agent.format import OLD, Fault, Scenario, Send, path_of, read_recording
from tests.golden.agent.scenarios import all_scenarios

SCENARIOS = {scenario.name: scenario for scenario in all_scenarios()}


def test_there_is_a_recording_of_every_scenario_and_no_other() -> None:
    names = {scenario.name for scenario in all_scenarios()}
    assert len(names) == len(all_scenarios())
    assert {path.name for path in OLD.glob("*.json")} == {path_of(name).name for name in names}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recording_matches_the_current_scenario(name: str) -> None:
    assert read_recording(path_of(name)).scenario == SCENARIOS[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_references_only_defined_items_and_its_inputs_are_in_order(name: str) -> None:
    scenario = SCENARIOS[name]
    times = [one.t for one in scenario.inputs]
    assert times == sorted(times)
    signatures = {s.name for s in scenario.signatures}
    digests = {c.digest for c in scenario.components}
    assert {a.signature for a in scenario.attempts} <= signatures
    assert {d for s in scenario.signatures for d in s.components} <= digests
    assert {a.adapter for a in scenario.attempts if a.adapter} <= digests
    assert {e.preload for e in scenario.engines if e.preload} <= {p.name for p in scenario.preloads}
    assert set(_assigned(scenario)) <= {a.id for a in scenario.attempts}
    assert set(_prewarmed(scenario)) <= signatures
    keys = signatures | {a.id for a in scenario.attempts} | {p.name for p in scenario.preloads}
    assert {one.key for one in scenario.inputs if isinstance(one, Fault)} <= keys


def _assigned(scenario: Scenario) -> Iterator[str]:
    for one in scenario.inputs:
        if isinstance(one, Send):
            yield from one.assign


def _prewarmed(scenario: Scenario) -> Iterator[str]:
    for one in scenario.inputs:
        if isinstance(one, Send):
            yield from (entry.signature for entry in one.hold_open or ())
