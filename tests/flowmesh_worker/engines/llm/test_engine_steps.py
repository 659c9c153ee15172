"""Steps of a real engine: their line, and that no more sequences run than a target allows."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_worker.engines.llm.conftest import HERE, program

pytestmark = [pytest.mark.slow, pytest.mark.model]


def printed(driver: str, model: Path, folder: Path) -> dict[str, Any]:
    lines = program(str(HERE / driver), str(model), str(folder / "scratch")).splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return found


def test_the_line_of_measured_steps_predicts_a_number_of_sequences_that_it_has_not_seen(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The error is stated: half of the measured time, on a machine that may do other work."""
    found = printed("steps_driver.py", tiny_model, tmp_path)
    base_s, sequence_s, prompt_token_s = found["fit"]
    assert sequence_s > 0, found
    assert prompt_token_s > 0, found
    assert base_s + sequence_s < base_s + 8 * sequence_s < base_s + 32 * sequence_s
    sequences, measured_s, predicted_s = found["held out"]
    assert sequences == 8
    assert measured_s / 2 < predicted_s < measured_s * 1.5, found


def test_a_batch_beside_calls_keeps_to_the_limit_and_has_the_same_rows(
    tiny_model: Path, tmp_path: Path
) -> None:
    found = printed("places_driver.py", tiny_model, tmp_path)
    assert max(map(int, found["steps alone"])) > 3
    assert max(map(int, found["steps beside"])) == 3
    assert found["stopped"] > 0
    assert found["beside"] == found["alone"]
