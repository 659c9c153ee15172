"""Attacker: a program that reaches the routers' port for hubs, or a worker of another namespace.
Action: poses as a hub without a link certificate, or with a forged, foreign or expired one.
Must not happen: a router sends it a call, or lets it fill its memory before it is verified.
"""

import asyncio
import contextlib
import ssl
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_serving.stack import SERVICE, until
from tests.flowmesh_serving.tls_stack import HOST, WORKER, TlsRouter, signer, tls_router

from flowmesh_core.protocol.link_certificates import VALID_S
from flowmesh_core.protocol.serving import (
    HELLO_BYTES_MAX,
    SERVING_VERSION,
    FromRouter,
    HubHello,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
)
from flowmesh_serving.links import hub_link

LOAD = ReplicaLoad("r1", SERVICE, ("/v1/chat/completions",), 4)
OTHERS = ReplicaLoad("r2", "team-b/chat", ("/v1/chat/completions",), 4)


@contextlib.asynccontextmanager
async def connected(
    router: TlsRouter,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    trust = ssl.create_default_context(cadata=router.ca)
    reader, writer = await asyncio.open_connection(HOST, router.router.hubs_port, ssl=trust)
    try:
        yield reader, writer
    finally:
        writer.close()


def send(writer: asyncio.StreamWriter, *messages: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(list(messages))
    writer.write(struct.pack(">I", len(body)) + body)


async def received(reader: asyncio.StreamReader) -> list[FromRouter]:
    async with asyncio.timeout(10):
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        return msgspec.msgpack.decode(await reader.readexactly(length), type=list[FromRouter])


def hello(certificate: str, *replicas: ReplicaLoad) -> HubHello:
    return HubHello(SERVING_VERSION, WORKER, "h1", replicas, certificate)


def forged() -> str:
    return signer(b"x" * 32).sign(WORKER, "i1", "thin", "", ["team-a"])


def altered() -> str:
    key, claims, signature = signer().sign(WORKER, "i1", "thin", "", ["team-b"]).split(".")
    _, others, _ = forged().split(".")
    assert claims != others
    return f"{key}.{others}.{signature}"


CERTIFICATES = {
    "has no link certificate": lambda: "",
    "another form": lambda: "a.b",
    "cannot be read": lambda: "00.!!.!!",
    "signature": forged,
    "the signature of": altered,
    "of worker worker-9": lambda: signer().sign("worker-9", "i1", "thin", "", ["team-a"]),
    "for the routers 'edge'": lambda: signer().sign(WORKER, "i1", "thin", "edge", ["team-a"]),
    "expired": lambda: signer(now=lambda: time.time() - VALID_S - 1).sign(
        WORKER, "i1", "thin", "", ["team-a"]
    ),
}


@pytest.mark.parametrize("reason", CERTIFICATES)
async def test_a_hub_without_a_valid_certificate_gets_nothing(tmp_path: Path, reason: str) -> None:
    async with tls_router(tmp_path) as router, connected(router) as (reader, writer):
        send(writer, hello(CERTIFICATES[reason](), LOAD))
        (refused,) = await received(reader)
        assert isinstance(refused, RouterRefused)
        assert reason in refused.reason
        assert await reader.read() == b""
        assert router.router._calls.replicas.count(SERVICE) == 0


async def test_a_hub_gets_calls_of_its_certificates_namespaces_alone(tmp_path: Path) -> None:
    async with tls_router(tmp_path) as router, connected(router) as (reader, writer):
        send(writer, hello(signer().sign(WORKER, "i1", "thin", "", ["team-a"]), LOAD, OTHERS))
        assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
        table = router.router._calls.replicas
        assert (table.count(SERVICE), table.count("team-b/chat")) == (1, 0)
        send(writer, ReplicaLoads((OTHERS,)))
        await until(lambda: table.count(SERVICE) == 0)
        assert table.count("team-b/chat") == 0


async def test_nothing_large_is_read_before_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_link, "HELLO_WITHIN_S", 0.5)
    async with tls_router(tmp_path) as router:
        async with connected(router) as (reader, writer):
            writer.write(struct.pack(">I", HELLO_BYTES_MAX + 1))
            (refused,) = await received(reader)
            assert isinstance(refused, RouterRefused)
            assert str(HELLO_BYTES_MAX) in refused.reason
        async with connected(router) as (reader, writer):  # one that waits is not waited for
            (refused,) = await received(reader)
            assert isinstance(refused, RouterRefused)
            assert "no hello" in refused.reason
