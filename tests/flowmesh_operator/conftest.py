"""Fixtures: a real API server, one for all tests of a process, and a namespace a test.

A file that uses them is marked ``slow``.
"""

from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import pytest
from tests.flowmesh_operator.api_server import ApiServer, running


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("api-server")) as server:
        yield server


@pytest.fixture
def namespace(api_server: ApiServer) -> Iterator[str]:
    """Yields a new namespace; deletes its FlowMesh objects afterwards."""
    name = api_server.namespace()
    yield name
    listed = api_server.kubectl(
        "api-resources", "--api-group=flowmesh.dev", "--namespaced=true", "-oname"
    )
    api_server.kubectl("delete", ",".join(listed.stdout.split()), "--all", "-n", name)


@pytest.fixture
def kubectl(api_server: ApiServer) -> Callable[..., CompletedProcess[str]]:
    """``kubectl(*words, given=None, ok=True, who="admin")``."""
    return api_server.kubectl
