"""The agent does what was recorded of it. Goes together with ``old_agent``."""

import pytest
from tests.golden.agent.format import path_of, read_recording
from tests.golden.agent.old_agent import record_old
from tests.golden.agent.scenarios import all_scenarios

NAMES = [scenario.name for scenario in all_scenarios()]


@pytest.mark.parametrize("name", NAMES)
def test_the_agent_does_what_was_recorded(name: str) -> None:
    recording = read_recording(path_of(name))
    assert record_old(recording.scenario) == recording.effects
