"""Steps of a real engine: they are measured, and no more sequences run than a target allows."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_worker.engines.llm.conftest import HERE, program

from flowmesh_core.serving.queue.step_profile import ENOUGH_STEPS

pytestmark = [pytest.mark.slow, pytest.mark.model]


def printed(driver: str, model: Path, folder: Path) -> dict[str, Any]:
    lines = program(str(HERE / driver), str(model), str(folder / "scratch")).splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return found


def test_the_steps_of_an_engine_are_measured_at_the_number_of_sequences_that_ran(
    tiny_model: Path, tmp_path: Path
) -> None:
    """How well the line predicts is a matter of time: ``make bench-serving-tokens``."""
    found = printed("steps_driver.py", tiny_model, tmp_path)
    for size in found["sizes"]:  # sizes within half an octave share a mean
        measured = [steps for n, steps in found["decoding"] if size <= n < 1.4 * size]
        assert sum(measured) >= ENOUGH_STEPS, found
    assert max(n for n, _ in found["decoding"]) <= max(found["sizes"])
    assert found["prompts"] > 0
    assert found["fit"]


def test_a_batch_beside_calls_keeps_to_the_limit_and_has_the_same_rows(
    tiny_model: Path, tmp_path: Path
) -> None:
    found = printed("places_driver.py", tiny_model, tmp_path)
    assert max(map(int, found["steps alone"])) > 3
    assert max(map(int, found["steps beside"])) == 3
    assert found["stopped"] > 0
    assert found["beside"] == found["alone"]
