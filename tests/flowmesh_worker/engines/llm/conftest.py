"""Fixtures: adapters of the tiny model, and engines that run in their own process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PACKAGES = ("api", "core", "store", "worker")
Drive = Callable[[dict[str, Any]], dict[str, Any]]


def program(*arguments: str, given: str = "", ends: int = 0) -> str:
    """Runs one of this folder's programs; shows its errors if it fails."""
    root = HERE.parents[3]
    path = os.pathsep.join(str(root / p) for p in PACKAGES)
    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == ends, done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def tiny_adapter(tiny_model: Path) -> Path:
    return adapters_of(tiny_model, adapter={})["adapter"]


def adapters_of(model: Path, **configs: dict[str, Any] | str) -> dict[str, Path]:
    """Creates LoRA adapters with random weights by name, or the model in another dtype."""
    usual = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
    given = {n: c if isinstance(c, str) else {**usual, **c} for n, c in configs.items()}
    program(str(HERE / "tiny_model.py"), str(model), json.dumps(given))
    return {name: model.with_name(name) for name in configs}


@pytest.fixture(scope="session")
def tool_templates(tiny_model: Path) -> dict[str, Any]:
    """The output of tool_templates.py."""
    printed = program(str(HERE / "tool_templates.py"), str(tiny_model))
    found: dict[str, Any] = json.loads(printed[: printed.rindex("}") + 1])
    return found


@pytest.fixture(scope="session")
def tool_parsers(tiny_model: Path) -> dict[str, Any]:
    """The output of tool_parsers.py."""
    printed = program(str(HERE / "tool_parsers.py"), str(tiny_model))
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Drive:
    """Runs a job of driver.py; returns its answer with the output of the process."""

    def run(job: dict[str, Any]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("host")
        answer = folder / "answer.json"
        ends = -signal.SIGKILL if "die_before" in job else 0
        given = {**job, "folder": str(folder), "answer": str(answer)}
        printed = program(str(HERE / "driver.py"), given=json.dumps(given), ends=ends)
        out: dict[str, Any] = json.loads(answer.read_text())
        return {**out, "printed": printed}

    return run
