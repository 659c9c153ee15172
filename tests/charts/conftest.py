"""Fixtures: the API server of the operator's tests."""

from collections.abc import Iterator

import pytest
from tests.flowmesh_operator.api_server import ApiServer, running


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("api-server")) as server:
        yield server
