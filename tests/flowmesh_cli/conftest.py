"""Fixtures of the command line's tests."""

from collections.abc import Iterator

import pytest
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFabric]:
    """One ``fmesh up`` for all tests of a module: starting one takes seconds."""
    with shared_fabric(tmp_path_factory.mktemp("fabric")) as found:
        yield found
