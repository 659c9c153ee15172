"""A control plane with several tenants, each with rights in its own namespace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.rights import EDIT, TableOfUsers

OWNER, ATTACKER, ADMIN = "owner", "attacker", "admin"
RIGHTS = {ADMIN: {"*": EDIT}, OWNER: {"team-a": EDIT}, ATTACKER: {"team-b": EDIT}}
NAMESPACES = {OWNER: "team-a", ATTACKER: "team-b"}
SPEC = {"steps": [{"name": "one", "uses": "test.noop"}]}


class Tenants(Fabric):
    """A fabric with requests in the name of a tenant."""

    async def ask(self, who: str, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
        self.token = f"{who}-token"
        return await self.call(method, path, status=status, **more)

    async def run(self, who: str, namespace: str = "", name: str = "flow") -> str:
        """Submits a workflow of one step that waits for a worker; returns its uid."""
        self.token = f"{who}-token"
        return await self.submit(workflow(name, SPEC, namespace or NAMESPACES[who]))

    async def answer(self, who: str, path: str) -> tuple[int, bytes]:
        """Sends a GET request; returns status and bytes of any answer."""
        headers = {"Authorization": f"Bearer {who}-token"}
        async with self.http.get(self.control.url + path, headers=headers) as response:
            return response.status, await response.read()


@contextlib.asynccontextmanager
async def tenants(
    folder: Path, rights: Mapping[str, Mapping[str, frozenset[str]]] = RIGHTS
) -> AsyncIterator[Tenants]:
    """Starts a control plane without workers; ends it and its workers after the block."""
    control = control_plane(folder, users=TableOfUsers(rights))
    await control.start()
    async with ClientSession() as http:
        fabric = Tenants(folder, control, http)
        try:
            yield fabric
        finally:
            await asyncio.to_thread(fabric.close)
            await control.stop()
