"""A fabric with a control plane in this process, without workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane


@asynccontextmanager
async def fabric_at(root: Path) -> AsyncIterator[Fabric]:
    """Starts a fabric over a directory below ``root``."""
    control = control_plane(root)
    await control.start()
    try:
        async with ClientSession() as http:
            fabric = Fabric(root, control, http)
            yield fabric
            await asyncio.to_thread(fabric.close)
    finally:
        await control.stop()
