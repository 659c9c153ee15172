"""Settings of all tests: examples may take long on a shared machine, and what runs beside what."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# pytest-xdist tells its processes the width of the terminal; what tests read was printed for none.
os.environ.pop("COLUMNS", None)

settings.register_profile("flowmesh", deadline=None)
settings.load_profile("flowmesh")

ROOT = Path(__file__).parents[1]
CLUSTER = ("tests/flowmesh_operator", "tests/charts")
# What starts processes or servers takes long, however few its tests are.
LONG = ("tests/flowmesh_cli", "tests/failures", "tests/flowmesh_control", *CLUSTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever takes longest comes first, so that what begins last ends soon."""

    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        if _loads_models(file):
            return 0
        return 1 if _asks_an_api_server(file) else 2 if file.startswith(LONG) else 3

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests share a process, and so do some files.

    Those that load models: two at once would starve. Those that ask the API server: a process
    starts one, for all that it runs.
    """
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # by the number of tests

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if _loads_models(file):
                return "models"
            return "api-server" if _asks_an_api_server(file) else file

    return ByFile(config, log)


@functools.cache
def _loads_models(file: str) -> bool:
    return "pytest.mark.model" in (ROOT / file).read_text()


@functools.cache
def _asks_an_api_server(file: str) -> bool:
    return file.startswith(CLUSTER) and "api_server" in (ROOT / file).read_text()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of two layers, made once: to read, or to copy."""
    return _made_by("llm/tiny_model.py", tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models ``policy`` and ``judge``, of two layers each."""
    return _made_by("train/tiny_judge.py", tmp_path_factory.mktemp("models"))


def _made_by(program: str, folder: Path) -> Path:
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
