"""Fabrics to break: a control plane here or in a process of its own, workers as processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane
from tests.flowmesh_control.test_restart import Elsewhere


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane without workers; slow attempts get no replica."""
    control = control_plane(tmp_path, replicas=False)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await fabric.control.stop()


@pytest.fixture
async def killable(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane that can be killed, without workers."""
    control = Elsewhere(tmp_path)
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)  # type: ignore[arg-type]
        await control.start(http)
        yield fabric
        await asyncio.to_thread(fabric.close)
        control.kill()
