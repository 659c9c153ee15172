"""One vLLM engine for attempts and calls: neither may change what the other computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]

PROGRAM = Path(__file__).with_name("shared_engine.py")


def test_a_batch_beside_20_calls_a_second_of_every_kind_has_the_same_texts(
    tiny_model: Path, tmp_path: Path
) -> None:
    answer = tmp_path / "answer.json"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tiny_model), str(tmp_path / "scratch"), str(answer)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(answer.read_text())
    assert found["calls"] >= 8  # each kind at least once
    assert found["beside"] == found["alone"]
    assert found["spoiled"] != found["alone"]  # without the rewriting the calls change the batch
