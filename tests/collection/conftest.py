"""One fabric for all workflows of a module, with the stand-ins of the servers that they ask."""

from collections.abc import Iterator

import pytest
from tests.collection.stand_ins import KEY, StandIns, stand_ins
from tests.flowmesh_cli.shared_fabric import shared_fabric
from tests.flowmesh_worker.hub import in_thread

import flowmesh_sdk as fm


@pytest.fixture(scope="module")
def server() -> Iterator[StandIns]:
    """Serves a chat API, a Qdrant and the user's own server."""
    with stand_ins() as one:
        yield one


@pytest.fixture(scope="module")
def client(server: StandIns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[fm.Client]:
    """Yields a client of a fabric that may ask the stand-ins, a hub's too."""
    del server  # only so that it ends later
    folder = tmp_path_factory.mktemp("fabric")
    with in_thread() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HUB_OFFLINE", "0")
        patch.setenv("FLOWMESH_IMPORT_ALLOW", "127.0.0.1/32")
        patch.setenv("FLOWMESH_HTTP_ALLOW", "127.0.0.1/32")
        patch.setenv("FMESH_SECRET_CHAT_KEY", KEY)
        with (
            shared_fabric(folder),
            fm.connect(state_dir=folder / ".flowmesh", start=False) as found,
        ):
            yield found
