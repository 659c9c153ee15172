"""Parts that several tests of the control plane stand on: real stores, real sockets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane

from flowmesh_store.store import Store, open_store


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store("memory:" if request.param == "memory" else tmp_path / "store")


@pytest.fixture
async def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane without workers; parameters are settings of its machine."""
    control = control_plane(tmp_path, **getattr(request, "param", {}))
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await fabric.control.stop()
    assert not +fabric.control.services.gateway.drops.counts, (
        "nothing that real workers say is refused"
    )
