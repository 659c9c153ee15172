"""Settings of all tests: no deadline for Hypothesis, and which tests may run concurrently."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# pytest-xdist passes the width of the terminal to its processes; tests expect output without one.
os.environ.pop("COLUMNS", None)

settings.register_profile("flowmesh", deadline=None)
settings.load_profile("flowmesh")

ROOT = Path(__file__).parents[1]
CLUSTER = ("tests/flowmesh_operator", "tests/charts")
# Folders whose tests start processes or servers take long, even with few tests.
LONG = ("tests/flowmesh_cli", "tests/failures", "tests/flowmesh_control", *CLUSTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest tests first, so that the last ones to start are short."""

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        if _loads_models(file):
            return 0
        return 1 if _uses_api_server(file) else 2 if file.startswith(LONG) else 3

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Runs the tests of a file in one process, and those of some files too.

    Tests that load models share a process, since two at once would lack memory. Tests that use the
    API server share one too, since each process starts its own server.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # by the number of tests

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if _loads_models(file):
                return "models"
            return "api-server" if _uses_api_server(file) else file

    return ByFile(config, log)


@functools.cache
def _loads_models(file: str) -> bool:
    return "pytest.mark.model" in (ROOT / file).read_text()


@functools.cache
def _uses_api_server(file: str) -> bool:
    return file.startswith(CLUSTER) and "api_server" in (ROOT / file).read_text()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of two layers, created once; tests must not change it."""
    return _run_program("llm/tiny_model.py", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models ``policy`` and ``judge``, of two layers each."""
    return _run_program("train/tiny_judge.py", tmp_path_factory.mktemp("models"))


def _run_program(program: str, folder: Path) -> Path:
    path = ROOT / "tests" / "flowmesh_worker" / "engines" / program
    done = subprocess.run(
        [sys.executable, str(path), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder
