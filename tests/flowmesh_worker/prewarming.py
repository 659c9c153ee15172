"""What the tests of hosts opened ahead of work share: gates before blobs, work that passes by."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowmesh_core.identity import digest_bytes

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import Assignment, InputRef
    from flowmesh_core.units import Digest
    from flowmesh_worker.agent.agent import Agent
    from flowmesh_worker.instances.engine_hosts import EngineHost

FIRST, SECOND, THIRD, FOURTH = (digest_bytes(bytes([i])) for i in range(4))
SAID = "flowmesh_worker.agent.shell"


class Gates:
    """A store that hands some blobs out only when told to, and notes who asked for them."""

    def __init__(self, inner: Any, *shut: "Digest") -> None:
        self._inner = inner
        self.asked: list[Digest] = []
        self._open: dict[Digest, asyncio.Event] = defaultdict(asyncio.Event)
        self._shut = set(shut)
        self._news = asyncio.Condition()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, digest: "Digest") -> bytes:
        if digest in self._shut:
            async with self._news:
                self.asked.append(digest)
                self._news.notify_all()
            await self._open[digest].wait()
        data: bytes = await self._inner.get(digest)
        return data

    async def until_asked(self, digest: "Digest", times: int = 1) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: self.asked.count(digest) >= times)

    def open(self, digest: "Digest") -> None:
        self._open[digest].set()


async def until_open(world: "World", *signatures: "Digest") -> None:
    """Waits until there are ready lanes of these signatures and no others."""
    await world.gateway.until(
        lambda: (
            {lane.signature for lane in world.gateway.lanes} == set(signatures)
            and all(lane.state == "ready" for lane in world.gateway.lanes)
        )
    )


async def pass_by(world: "World", **changes: Any) -> None:
    """Has an attempt run to its end: time for what should not happen to happen."""
    assert (await world.gateway.do(world.assignment("test.noop", **changes))).failure is None


def host_of(agent: "Agent", signature: "Digest") -> "EngineHost":
    (lane,) = (lane for lane in agent.hosts if lane.signature == signature)
    return lane


def fetched_to(agent: "Agent", signature: "Digest") -> Path:
    (component,) = host_of(agent, signature).start.components.values()
    return Path(component.paths[0])


def using(ref: "InputRef") -> dict[str, Any]:
    return {"inputs": {"m": ref}, "components": ("m",)}


def sleeping(world: "World", signature: "Digest", **changes: Any) -> "Assignment":
    defaults: dict[str, Any] = {"params": {"seconds": 600}, "signature": signature}
    return world.assignment("test.sleep", **(defaults | changes))
