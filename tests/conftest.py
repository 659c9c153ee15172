"""Settings of all tests: examples may take long on a shared machine, and what runs beside what."""

import os

import pytest
from hypothesis import settings

# pytest-xdist tells its processes the width of the terminal; what tests read was printed for none.
os.environ.pop("COLUMNS", None)

settings.register_profile("flowmesh", deadline=None)
settings.load_profile("flowmesh")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share a process, and so do all that load models: two at once would starve."""
    for item in items:
        group = "models" if item.get_closest_marker("model") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
