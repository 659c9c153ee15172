"""Fixtures: training hosts that run in their own process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PACKAGES = ("api", "core", "store", "worker")
Train = Callable[..., list[dict[str, Any]]]


def program(*arguments: str, given: str = "") -> str:
    """Runs a program of the tests; shows its errors if it fails."""
    root = HERE.parents[3]
    path = os.pathsep.join([str(root), *(str(root / p) for p in PACKAGES)])
    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Runs hosts of driver.py in one process; returns an answer for each, with its output."""

    def run(*hosts: dict[str, Any]) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("train")
        answer = folder / "answer.json"
        given = {"hosts": hosts, "folder": str(folder), "answer": str(answer)}
        printed = program(str(HERE / "driver.py"), given=json.dumps(given))
        out: list[dict[str, Any]] = json.loads(answer.read_text())
        return [{**host, "printed": printed} for host in out]

    return run
