"""Router, hub and engine hosts meet on sockets that only their user may use."""

import asyncio
import stat
import struct
from pathlib import Path

import msgspec
import openai
import pytest
from tests.flowmesh_serving.stack import (
    SERVICE,
    ask,
    echo_stack,
    services,
    serving_stack,
    until,
)

from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    CallEnded,
    HubHello,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
)

CHAT = "/v1/chat/completions"
SHORT = {"X-Request-Timeout": "1"}


async def test_the_sockets_are_private_to_their_user(tmp_path: Path) -> None:
    async with echo_stack(tmp_path):
        for path in (tmp_path / "hubs", tmp_path / "host" / "calls"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "first",
    [
        HubHello(SERVING_VERSION + 1, "w", "i", ()),
        ReplicaLoads((ReplicaLoad("r", "team-a/echo", (CHAT,), 1),)),
        CallEnded("c", "ok"),
    ],
)
async def test_a_hub_of_another_version_or_without_a_hello_is_refused(
    tmp_path: Path, first: msgspec.Struct
) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        writer.write(frame(first))
        (refused,) = await received(reader)
        assert isinstance(refused, RouterRefused)
        assert await reader.read() == b""
        writer.close()
        assert (await ask(client, "one")).choices[0].message.content == "one"


async def test_a_hub_cannot_end_the_call_of_another_hub(tmp_path: Path) -> None:
    listed = (*services(), ServiceEntry("team-b/x", "x"))
    async with echo_stack(tmp_path, listed=listed) as stack, stack.client as client:
        waiting = asyncio.create_task(ask(client, "wait", extra_headers=SHORT))
        calls = stack.router._calls
        await until(lambda: calls.in_flight == 1)
        (call_id,) = calls._pending
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        hello = HubHello(SERVING_VERSION, "w", "i", (ReplicaLoad("r", "team-b/x", (CHAT,), 1),))
        writer.write(frame(hello, CallEnded(call_id, "ok", body=b"{}")))
        await until(lambda: calls.replicas.count("team-b/x") == 1)
        with pytest.raises(openai.InternalServerError, match="longer than its timeout"):
            await waiting  # not the answer of the other hub
        writer.close()
        await until(lambda: calls.replicas.count("team-b/x") == 0)


async def test_a_hub_that_does_not_answer_is_504_after_the_timeout(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        load = ReplicaLoad("r", SERVICE, (CHAT,), 1)
        writer.write(frame(HubHello(SERVING_VERSION, "w", "i", (load,))))
        await stack.until_ready()
        with pytest.raises(openai.InternalServerError, match="longer than its timeout"):
            await ask(client, "one", extra_headers={"X-Request-Timeout": "0.1"})
        assert stack.router._calls.in_flight == 0
        writer.close()


async def test_a_hub_that_announces_a_huge_frame_is_disconnected(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        writer.write(struct.pack(">I", (1 << 32) - 1))
        (refused,) = await received(reader)
        assert "announces a frame of 4294967295 bytes" in refused.reason
        assert await reader.read() == b""
        writer.close()
        assert (await ask(client, "one")).choices[0].message.content == "one"


def frame(*messages: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(messages)
    return struct.pack(">I", len(body)) + body


async def received(reader: asyncio.StreamReader) -> list[RouterRefused]:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return msgspec.msgpack.decode(await reader.readexactly(length), type=list[RouterRefused])
