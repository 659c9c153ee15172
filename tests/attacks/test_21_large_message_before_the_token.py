"""Attacker: T3. Action: sends large messages to the workers' port, with and without a token.
Must not happen: a byte is read before the token is checked; one message costs over 128 MiB.
"""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType
from tests.attacks.by_hand import TOKENS, Place, end_of, noop, place
from tests.attacks.growth import GROWTH_MAX
from tests.flowmesh_control.given import TOKENS as ATTEMPT_TOKENS

from flowmesh_control.workers import gateway
from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_control.workers.message_reading import Unreadable, read_message
from flowmesh_core.protocol.attempt_tokens import TokenHolder
from flowmesh_core.protocol.frames import COUNT_FROM_BYTES, MESSAGE_BYTES_MAX, VALUES_MAX
from flowmesh_core.protocol.messages import Sync, WorkerMessage, encode
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

pytestmark = pytest.mark.slow

D = Digest("0" * 64)
MINE = f"ns/{D}/1-1"
HANDSHAKE = (
    "GET /worker HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n"
)
FRAME = b"\x82\xff" + (64 << 20).to_bytes(8, "big") + bytes(4)
"""The head of a masked binary frame of 64 MiB."""
WITHOUT_A_TOKEN = {
    "no header": "",
    "an empty one": "Authorization: Bearer \r\n",
    "another scheme": f"Authorization: Basic {TOKENS['good']}\r\n",
    "a guess": "Authorization: Bearer guess\r\n",
    "a user's": "Authorization: Bearer api-token\r\n",
    "in the address": "X-Token: " + TOKENS["good"] + "\r\n",
}


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def test_nothing_is_read_before_the_token_is_valid(
    there: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()

    async def counting(message: WSMessage) -> WorkerMessage | Unreadable:
        read.append(len(message.data))
        return await read_message(message)

    monkeypatch.setattr(gateway, "read_message", counting)
    host, port = there.control.url.split("//")[1].split(":")
    for name, header in WITHOUT_A_TOKEN.items():
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HANDSHAKE.format(header).encode() + FRAME)
        assert (await reader.readline()).startswith(b"HTTP/1.1 401"), name
        writer.close()
    assert read == []

    worker = await there.join("w")
    await there.submit("run", noop())
    [given] = await worker.given()
    end = end_of(given.attempt_id, given.action_id, log="x" * (COUNT_FROM_BYTES + 1))
    await worker.sync(ended=(end,))
    await there.heard(lambda: worker.acknowledged)
    assert max(read) > COUNT_FROM_BYTES


def of_value(value: Any) -> bytes:
    artifact = Artifact("metrics", D, D, value={"a": value})
    return encode(Sync(1, ended=(end_of(MINE, D, outputs={"metrics": artifact}, inline={}),)))


def metrics(count: int) -> bytes:
    return msgspec.msgpack.encode(
        {"type": "sync", "seq": 1, "metrics": {f"{n:x}": 0 for n in range(count)}}
    )


WORST = {
    "empty lists, uncounted": lambda: of_value([[]] * (COUNT_FROM_BYTES - 2000)),
    "empty maps, uncounted": lambda: of_value([{}] * (COUNT_FROM_BYTES - 2000)),
    "as many empty maps as allowed": lambda: of_value(
        [*[{}] * (VALUES_MAX - 100), "x" * COUNT_FROM_BYTES]
    ),
    "more": lambda: of_value([{}] * (MESSAGE_BYTES_MAX - 2000)),
    "as many figures as allowed": lambda: metrics(VALUES_MAX // 2 - 10),
    "a log as large as allowed": lambda: encode(
        Sync(1, ended=(end_of(MINE, D, log="x" * (MESSAGE_BYTES_MAX - 2000)),))
    ),
    "figures of a whole message": lambda: metrics(1 << 20),
}


@pytest.mark.parametrize("name", WORST)
async def test_one_message_costs_no_more_than_128_mib(name: str) -> None:
    data = WORST[name]()
    given = GivenAttempts(
        TokenIssuer(ATTEMPT_TOKENS, lambda: 1e9, lambda: 1e9), TokenHolder("p", "p-1", "i")
    )
    given.give(MINE, 1, ())
    intake = MessageIntake(given)
    tracemalloc.start()
    try:
        received = await read_message(WSMessage(WSMsgType.BINARY, data, None))
        if isinstance(received, Sync):
            intake.sync(received)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    receiving = 3 * len(data)  # the frame's pieces, the whole of it, and the message
    assert peak + receiving <= GROWTH_MAX
