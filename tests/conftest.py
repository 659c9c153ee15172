"""Settings of all tests: examples may take long on a shared machine, and what runs beside what."""

import functools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# pytest-xdist tells its processes the width of the terminal; what tests read was printed for none.
os.environ.pop("COLUMNS", None)

settings.register_profile("flowmesh", deadline=None)
settings.load_profile("flowmesh")

ROOT = Path(__file__).parents[1]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests share a process, and so do all that load models: two at once would starve."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "models" if _loads_models(file) else file

    return ByFile(config, log)


@functools.cache
def _loads_models(file: str) -> bool:
    return "pytest.mark.model" in (ROOT / file).read_text()
