"""Attacker: a program that reaches the routers' port for hubs, or a worker of another namespace.
Action: poses as a hub without a link certificate, or with a forged, foreign or expired one.
Must not happen: a router sends it a call, or lets it fill its memory before it is verified.
"""

import asyncio
import contextlib
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_serving.stack import SERVICE, until
from tests.flowmesh_serving.tls_stack import (
    HOST,
    WORKER,
    TlsRouter,
    certificate,
    signer,
    tls_router,
)

from flowmesh_core.protocol.link_certificates import VALID_S, LinkCertificate
from flowmesh_core.protocol.serving import (
    HELLO_BYTES_MAX,
    SERVING_VERSION,
    FromRouter,
    HubHello,
    LinkRenewed,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
)
from flowmesh_serving.links import hub_link
from flowmesh_worker.serving.link_tls import router_context

LOAD = ReplicaLoad("r1", SERVICE, ("/v1/chat/completions",), 4)
OTHERS = ReplicaLoad("r2", "team-b/chat", ("/v1/chat/completions",), 4)


@contextlib.asynccontextmanager
async def connected(
    router: TlsRouter, shown: LinkCertificate | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    trust = ssl.create_default_context(cadata=router.ca)
    if shown is not None:
        trust = router_context(router.tls(shown))
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


def hello(*replicas: ReplicaLoad) -> HubHello:
    return HubHello(SERVING_VERSION, WORKER, "h1", replicas)


def forged() -> LinkCertificate:
    return signer(b"x" * 32).issue(WORKER, "i1", "thin", "", ["team-a"])


def expired() -> LinkCertificate:
    return signer(now=lambda: time.time() - VALID_S - 1).issue(WORKER, "i1", "thin", "", ["team-a"])


@pytest.mark.parametrize("shown", [lambda: None, forged, expired])
async def test_a_hub_without_a_valid_certificate_does_not_get_through_tls(
    tmp_path: Path, shown: Callable[[], LinkCertificate | None]
) -> None:
    async with tls_router(tmp_path) as router, connected(router, shown()) as (reader, writer):
        send(writer, hello(LOAD))
        with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
            await received(reader)
        assert router.router._calls.replicas.count(SERVICE) == 0


OF_OTHERS: dict[str, Callable[[], LinkCertificate]] = {
    "of worker worker-9": lambda: certificate(worker="worker-9"),
    "for the routers 'edge'": lambda: signer().issue(WORKER, "i1", "thin", "edge", ["team-a"]),
}


@pytest.mark.parametrize("reason", OF_OTHERS)
async def test_a_certificate_is_for_one_worker_and_its_routers(tmp_path: Path, reason: str) -> None:
    async with (
        tls_router(tmp_path) as router,
        connected(router, OF_OTHERS[reason]()) as (reader, writer),
    ):
        send(writer, hello(LOAD))
        (refused,) = await received(reader)
        assert isinstance(refused, RouterRefused)
        assert reason in refused.reason
        assert await reader.read() == b""
        assert router.router._calls.replicas.count(SERVICE) == 0


RENEWED: dict[str, Callable[[], str]] = {
    "not of this installation": lambda: forged().certificate,
    "has expired": lambda: expired().certificate,
    "is of worker worker-9": lambda: certificate(["team-b"], "worker-9").certificate,
    "cannot be read": lambda: "PEM",
}


@pytest.mark.parametrize("reason", RENEWED)
async def test_a_certificate_that_is_shown_later_is_verified_too(
    tmp_path: Path, reason: str
) -> None:
    async with (
        tls_router(tmp_path) as router,
        connected(router, certificate()) as (reader, writer),
    ):
        send(writer, hello(LOAD))
        assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
        send(writer, LinkRenewed(RENEWED[reason]()))
        (refused,) = await received(reader)
        assert isinstance(refused, RouterRefused)
        assert reason in refused.reason
        await until(lambda: router.router._calls.replicas.count(SERVICE) == 0)


async def test_a_hub_gets_calls_of_its_certificates_namespaces_alone(tmp_path: Path) -> None:
    async with (
        tls_router(tmp_path) as router,
        connected(router, certificate()) as (reader, writer),
    ):
        send(writer, hello(LOAD, OTHERS))
        assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
        table = router.router._calls.replicas
        assert (table.count(SERVICE), table.count("team-b/chat")) == (1, 0)
        send(writer, ReplicaLoads((OTHERS,)))
        await until(lambda: table.count(SERVICE) == 0)
        assert table.count("team-b/chat") == 0


async def test_nothing_large_is_read_before_the_hello(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_link, "HELLO_WITHIN_S", 0.5)
    async with tls_router(tmp_path) as router:
        async with connected(router, certificate()) as (reader, writer):
            writer.write(struct.pack(">I", HELLO_BYTES_MAX + 1))
            (refused,) = await received(reader)
            assert isinstance(refused, RouterRefused)
            assert str(HELLO_BYTES_MAX) in refused.reason
        async with connected(router, certificate()) as (reader, writer):  # it is not waited for
            (refused,) = await received(reader)
            assert isinstance(refused, RouterRefused)
            assert "no hello" in refused.reason
