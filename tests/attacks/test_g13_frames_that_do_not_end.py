"""Attacker: W, a worker with a certificate of a namespace that the hub of another one has, too.
Action: makes connections with frames that do not end, and sends values of requests that are none.
Must not happen: the hub's memory fills, or the values of other workers are kept out.
"""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.attacks.test_g10_connections_to_the_port_for_values import answer
from tests.flowmesh_serving.machines import hub_with_port, peer_value, tls_of
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.tls_stack import certificate

from flowmesh_core.protocol.serving import SERVING_VERSION, PassedValue, PeerHello
from flowmesh_worker.serving import peer_source, unfinished_frames
from flowmesh_worker.serving.early_values import EARLY_BYTES_MAX, EARLY_MAX, EarlyValue, EarlyValues
from flowmesh_worker.serving.link_tls import peer_contexts
from flowmesh_worker.serving.peer_receiver import Peer
from flowmesh_worker.serving.service_hub import ServiceHub
from flowmesh_worker.serving.unfinished_frames import UnfinishedFrames

MOST = 4 << 20
PART = b"\0" * (512 << 10)


def context(worker: str) -> ssl.SSLContext:
    return peer_contexts(tls_of(certificate(worker=worker)))[1]


@contextlib.asynccontextmanager
async def link(
    port: int, worker: str, *, hello: bool = True
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context(worker), server_hostname=""
    )
    try:
        if hello:
            body = msgspec.msgpack.encode([PeerHello(SERVING_VERSION, worker, "key")])
            writer.write(struct.pack(">I", len(body)) + body)
            assert await reader.read(4096)  # the welcome
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await reader.read() == b""


def _is_bounded(unfinished: UnfinishedFrames, worker: str) -> bool:
    return 2 * unfinished._bytes[worker] <= MOST and unfinished.total <= MOST


async def serves(hub: ServiceHub, port: int) -> None:
    """The value of another worker is taken."""
    assert await answer(port, context("w-2")) != b""
    await until(lambda: hub._stages._early.size > 0)


async def test_frames_that_do_not_end_have_a_bound_for_each_worker_and_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_frames, "UNFINISHED_BYTES_MAX", MOST)
    async with hub_with_port(tmp_path, "w-1") as (hub, port), contextlib.AsyncExitStack() as stack:
        unfinished = hub._stages.peers._port._unfinished
        for worker in ("w-5", "w-6", "w-7"):
            opened = []
            for _ in range(MOST // len(PART)):
                one = await stack.enter_async_context(link(port, worker))
                opened.append(one)
                one[1].write(struct.pack(">I", 64 << 20) + PART)
            for _, writer in opened:
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
            endings = [asyncio.ensure_future(ended(reader)) for reader, _ in opened]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            for ending in endings:
                ending.cancel()
            await until(lambda: _is_bounded(unfinished, worker))  # noqa: B023 - at once
        await serves(hub, port)
    await until(lambda: not unfinished.total)


async def test_a_frame_that_does_not_end_in_time_ends_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_source, "FRAME_WITHIN_S", 0.2)
    monkeypatch.setattr(peer_source, "HELLO_WITHIN_S", 1.0)
    async with hub_with_port(tmp_path, "w-1") as (hub, port):
        async with link(port, "w-5") as (reader, writer):
            writer.write(struct.pack(">I", 64 << 20) + PART)
            await ended(reader)
        async with link(port, "w-5", hello=False) as (reader, writer):
            await ended(reader)
        async with link(port, "w-5", hello=False) as (reader, writer):
            writer.write(struct.pack(">I", peer_source.HELLO_BYTES_MAX + 1))
            await ended(reader)
        await serves(hub, port)


@pytest.mark.parametrize("size", [1, EARLY_BYTES_MAX // 16])
async def test_values_of_requests_that_are_none_do_not_keep_out_those_of_others(size: int) -> None:
    values, refused = EarlyValues(), list[str]()

    def add(worker: str, request_id: str, size: int) -> None:
        value = msgspec.structs.replace(peer_value(request_id), value=PassedValue())
        early = EarlyValue(
            Peer(worker, "key"), value, b"x" * size, lambda: refused.append(request_id)
        )
        values.add(early)

    for number in range(2 * EARLY_MAX if size == 1 else 64):
        add("w-2", f"none-{number}", size)
    assert values.size <= EARLY_BYTES_MAX
    assert len(values._waiting) <= EARLY_MAX
    for number in range(3):
        add("w-3", f"one-{number}", EARLY_BYTES_MAX // 8 if size > 1 else 1)
        add("w-2", f"more-{number}", size)
    assert [len(values.take(f"one-{number}")) for number in range(3)] == [1, 1, 1]
    assert not any(request_id.startswith("one") for request_id in refused)
    for early in list(values._waiting):
        values._remove(early)
