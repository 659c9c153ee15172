"""Attacker: a program that reaches the port of a hub for values, without a certificate for it.
Action: sends values in plain TCP, or by TLS with no certificate, a forged or an expired one.
Must not happen: the hub reads one; the hub of another worker, with a valid one, sends its value.
"""

import asyncio
import contextlib
import ssl
import struct
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_serving.machines import hub_with_port, peer_value, tls_of
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.tls_stack import certificate, signer

from flowmesh_core.protocol.link_certificates import VALID_S
from flowmesh_core.protocol.serving import SERVING_VERSION, FromPeer, PeerHello, PeerWelcome
from flowmesh_worker.serving.link_tls import peer_contexts

FRAME = msgspec.msgpack.encode([PeerHello(SERVING_VERSION, "w-2", "key"), peer_value()])


async def answer(port: int, context: ssl.SSLContext | None) -> bytes:
    """Sends a hello and a value; returns what the hub sends before it closes the connection."""
    host = None if context is None else ""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname=host
            )
            with contextlib.closing(writer):
                writer.write(struct.pack(">I", len(FRAME)) + FRAME)
                return await reader.read(4096)
    return b""


def without_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def forged() -> ssl.SSLContext:
    known = signer().authorities["00"]
    false = signer(b"x" * 32).issue("w-2", "i1", "thin", "", ["team-a"])
    return peer_contexts(tls_of(msgspec.structs.replace(false, authorities=known)))[1]


def expired() -> ssl.SSLContext:
    late = signer(now=lambda: time.time() - VALID_S - 1)
    return peer_contexts(tls_of(late.issue("w-2", "i1", "thin", "", ["team-a"])))[1]


@pytest.mark.parametrize("context", [lambda: None, without_certificate, forged, expired])
async def test_a_value_without_a_valid_certificate_is_not_read(
    tmp_path: Path, context: Callable[[], ssl.SSLContext | None]
) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, port):
        assert await answer(port, context()) == b""
        assert hub._stages._early.size == 0
        rightful = peer_contexts(tls_of(certificate(worker="w-2")))[1]
        found = await answer(port, rightful)
        assert msgspec.msgpack.decode(found[4:], type=list[FromPeer]) == [PeerWelcome()]
        await until(lambda: hub._stages._early.size > 0)
