"""Parts that several tests of the control plane stand on: real stores, real sockets."""

from pathlib import Path

import pytest

from flowmesh_store.store import Store, open_store


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store("memory:" if request.param == "memory" else tmp_path / "store")
