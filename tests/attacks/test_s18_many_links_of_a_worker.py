"""Attacker: W, a worker with a valid link certificate.
Action: makes ever more connections to a router, each with a large frame that does not end, or
    shows certificates without end.
Must not happen: the router keeps them all; the worker's newest connection, and others', serve.
"""

import asyncio
import contextlib
import struct
from pathlib import Path

import msgspec
import pytest
from tests.attacks.test_s10_hubs_without_a_certificate import (
    LOAD,
    connected,
    hello,
    received,
    send,
)
from tests.flowmesh_serving.stack import SERVICE, until
from tests.flowmesh_serving.tls_stack import certificate, tls_router

from flowmesh_core.protocol.serving import (
    FRAME_BYTES_MAX,
    SERVING_VERSION,
    HubHello,
    LinkRenewed,
    RouterRefused,
    RouterWelcome,
)
from flowmesh_serving.links.hub_link import RENEWALS_PER_S, RecentLinks

LINKS = 12
PART = b"\0" * (256 << 10)


async def refusal(reader: asyncio.StreamReader) -> str:
    while not isinstance((frame := (await received(reader))[-1]), RouterRefused):
        pass
    return frame.reason


async def test_a_worker_has_few_links_and_each_bounds_what_it_may_fill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_router(tmp_path) as router, contextlib.AsyncExitStack() as stack:
        table, links = router.router._calls.replicas, router.router._recent_links
        other = msgspec.structs.replace(LOAD, replica_id="r2")
        shown = certificate(worker="w-2")
        reader, writer = await stack.enter_async_context(connected(router, shown))
        send(writer, HubHello(SERVING_VERSION, "w-2", "h2", (other,)))
        assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
        opened = []
        for _ in range(LINKS):
            connection = await stack.enter_async_context(connected(router, certificate()))
            opened.append(connection)
            send(connection[1], hello(LOAD))
            assert await received(connection[0]) == [RouterWelcome(SERVING_VERSION)]
            with contextlib.suppress(ConnectionError):
                connection[1].write(struct.pack(">I", FRAME_BYTES_MAX) + PART)
            (first, *_) = links._of.values()
            assert len(first) == 1  # that of the other worker
            assert sum(map(len, links._of.values())) <= 1 + RecentLinks.MOST
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await opened[0][0].read(1 << 16):
                pass
        assert "has made other connections" in caplog.text
        assert set(table.of(SERVICE)) == {"r1", "r2"}
        for _, writer in opened:
            writer.close()
        await until(lambda: sum(map(len, links._of.values())) == 1)
        assert set(table.of(SERVICE)) == {"r2"}


async def test_a_hub_shows_few_certificates_a_second(tmp_path: Path) -> None:
    async with tls_router(tmp_path) as router:
        async with connected(router, certificate()) as (reader, writer):
            send(writer, hello(LOAD))
            assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
            renewed = LinkRenewed(certificate().certificate)
            send(writer, *[renewed] * (RENEWALS_PER_S + 1))
            assert "certificates a second" in await refusal(reader)
        async with connected(router, certificate(worker="w-2")) as (reader, writer):
            other = msgspec.structs.replace(LOAD, replica_id="r2")
            send(writer, HubHello(SERVING_VERSION, "w-2", "h2", (other,)))
            assert await received(reader) == [RouterWelcome(SERVING_VERSION)]
            send(writer, LinkRenewed(certificate(worker="w-2").certificate))
            send(writer, HubHello(SERVING_VERSION, "w-2", "h2", ()))
            assert "second hello" in await refusal(reader)  # and nothing before it was refused
