"""One vLLM engine for attempts and calls: neither may change what the other computes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = Path(__file__).with_name("shared_engine.py")


@pytest.fixture(scope="module", params=["roomy", "tight"])
def found(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shared")
    answer = folder / "answer.json"
    arguments = [tiny_model, folder / "scratch", answer, request.param]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {**json.loads(answer.read_text()), "load": request.param}


def test_a_batch_beside_calls_of_every_kind_has_the_same_rows(found: dict[str, Any]) -> None:
    assert min(found["calls"].values()) >= 3, found["calls"]  # of each kind, while it ran
    assert found["beside"] == found["alone"]


def test_without_the_rewriting_of_sampling_parameters_calls_change_a_batch(
    found: dict[str, Any],
) -> None:
    assert found["spoiled"] != found["alone"]


def test_calls_preempt_a_batch_where_the_cache_is_small(found: dict[str, Any]) -> None:
    is_tight = found["load"] == "tight"
    assert found["preempted alone"] == {"batch": 0, "calls": 0}
    assert (found["preempted beside"]["batch"] > 0) == is_tight, found["preempted beside"]
