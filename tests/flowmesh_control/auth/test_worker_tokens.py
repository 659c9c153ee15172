"""Tokens of workers, whatever bytes a header holds."""

import asyncio

import pytest
from tests.attacks.by_hand import place

from flowmesh_control.auth.worker_tokens import StaticWorkerTokens, WorkerIdentity

HANDSHAKE = (
    b"GET /worker HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Authorization: Bearer %s\r\n\r\n"
)


@pytest.mark.parametrize("token", [b"\xff\xfe", "caf\u00e9".encode()])
async def test_a_handshake_with_a_non_ascii_token_is_refused_as_invalid(
    token: bytes,
) -> None:
    async with place() as there:
        host, port = there.control.url.split("//")[1].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(HANDSHAKE % token)
        status = await reader.readline()
        writer.close()
        assert status.startswith(b"HTTP/1.1 401")


async def test_a_token_of_any_bytes_is_compared_as_bytes() -> None:
    tokens = StaticWorkerTokens({"a": "caf\u00e9", "b": "\udcff"})
    assert await tokens.identity_of("caf\u00e9") == WorkerIdentity("a")
    assert await tokens.identity_of("\udcff") == WorkerIdentity("b")
    assert await tokens.identity_of("\udcfe") is None
