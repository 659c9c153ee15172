"""A hub that a test plays by hand: it says what an honest one would not."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tests.flowmesh_serving.stack import SERVICE

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    FromRouter,
    HubHello,
    ReplicaLoad,
    RouterRefused,
    ServiceCall,
)

CHAT = "/v1/chat/completions"


@dataclass
class HandHub:
    """A connection to a router."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, *messages: msgspec.Struct) -> None:
        """Sends messages in one frame."""
        self.writer.write(frame(*messages))

    async def heard(self) -> list[Any]:
        """Returns the messages of the router's next frame."""
        (length,) = struct.unpack(">I", await self.reader.readexactly(4))
        body = await self.reader.readexactly(length)
        return msgspec.msgpack.decode(body, type=list[FromRouter])

    async def call(self) -> ServiceCall:
        """Returns the next call."""
        return await self._next(ServiceCall)  # type: ignore[no-any-return]

    async def refusal(self) -> str:
        """Returns why the router has closed the connection."""
        found = await self._next(RouterRefused)
        with contextlib.suppress(ConnectionError):
            await self.reader.read()
        return str(found.reason)

    async def _next(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(30):
            while True:
                for message in await self.heard():
                    if isinstance(message, kind):
                        return message


@contextlib.asynccontextmanager
async def hand_hub(
    folder: Path, *loads: ReplicaLoad, worker: str = "by-hand", reports_stages: bool = False
) -> AsyncIterator[HandHub]:
    """Yields a hub that has said hello with these replicas."""
    reader, writer = await asyncio.open_unix_connection(str(folder / "hubs"))
    hub = HandHub(reader, writer)
    hub.say(HubHello(SERVING_VERSION, worker, "i", loads, reports_stages=reports_stages))
    try:
        yield hub
    finally:
        writer.close()


def load(replica_id: str = "r", service: str = SERVICE, **more: Any) -> ReplicaLoad:
    """Returns the report of a replica."""
    return ReplicaLoad(replica_id, service, more.pop("paths", (CHAT,)), more.pop("calls_max", 4))


def frame(*messages: msgspec.Struct) -> bytes:
    """Returns messages as they are on the wire."""
    body = msgspec.msgpack.encode(messages)
    return struct.pack(">I", len(body)) + body
