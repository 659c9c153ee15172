"""Fabrics for fault injection: a control plane in this or another process, worker processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane
from tests.flowmesh_control.test_restart import Elsewhere


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane in this process, without workers and without replica attempts."""
    control = control_plane(tmp_path, replicas=False)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await fabric.control.stop()


@pytest.fixture
async def killable(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane in its own process, which can be killed, without workers."""
    control = Elsewhere(tmp_path)
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)  # type: ignore[arg-type]
        await control.start(http)
        yield fabric
        await asyncio.to_thread(fabric.close)
        control.kill()
