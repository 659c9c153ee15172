"""Attacker: W, the hub of a worker that has a replica of a service.
Action: answers twice, after the end, and calls of others; sends odd ends, floods, and non-frames.
Must not happen: a wrong or second answer, memory or series that grow, or another hub's calls fail.
"""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import openai
import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub, load
from tests.flowmesh_serving.stack import (
    SERVICE,
    Stack,
    ask,
    replica_of,
    serving_stack,
    start_host,
    until,
)

from flowmesh_core.protocol.serving import (
    CREDIT_BYTES,
    CallEnded,
    CallRefused,
    CallTimes,
    HubHello,
    Piece,
    ReplicaLoads,
)
from flowmesh_serving.links.hub_link import LOADS_PER_S, REPLICAS_MAX, STRAY_FRAMES_PER_S

GOOD = json.dumps(
    {"id": "x", "object": "chat.completion", "choices": [], "marker": "good"}
).encode()
BAD = GOOD.replace(b"good", b"bad")


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[tuple[Stack, HandHub]]:
    """Yields a router whose only replica is the attacker's."""
    async with (
        serving_stack(folder, replica_wait_s=0.05) as stack,
        hand_hub(folder, load(), worker="w-9") as hub,
    ):
        await stack.until_ready()
        yield stack, hub


async def honest_answers(stack: Stack, client: openai.AsyncOpenAI) -> None:
    """A worker that keeps to the protocol serves the service."""
    host = await start_host(stack.folder / "honest")
    await stack.hub.admit(replica_of(host))
    await until(lambda: stack.router._calls.replicas.count(SERVICE) >= 1)
    assert (await ask(client, "own")).choices[0].message.content == "own"
    await host.close()


ENDS = {
    "an outcome that there is not": lambda i: CallEnded(i, "great", body=BAD),
    "a status that there is not": lambda i: CallEnded(i, "failed", 7, BAD),
    "a failure with 200": lambda i: CallEnded(i, "failed", 200, BAD),
    "a success with 500": lambda i: CallEnded(i, "ok", 500, BAD),
    "negative tokens": lambda i: CallEnded(i, "ok", body=BAD, tokens_out=-1),
    "very many tokens": lambda i: CallEnded(i, "ok", body=BAD, tokens_in=1 << 60),
    "pieces of a call that is no stream": lambda i: Piece(i, b"data: bad\n\n"),
}


@pytest.mark.parametrize("name", ENDS)
async def test_an_end_that_no_hub_sends_is_no_answer_and_closes_the_link(
    tmp_path: Path, name: str
) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        waiting = asyncio.create_task(ask(client, "one"))
        call = await hub.call()
        hub.say(ENDS[name](call.call_id))
        assert "a frame that its call does not allow" in await hub.refusal()
        with pytest.raises(openai.InternalServerError, match="has ended") as failed:
            await waiting
        assert failed.value.status_code == 503
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{stack.router.url}/metrics") as response,
        ):
            text = await response.text()
            assert "great" not in text
            counted = [line for line in text.splitlines() if "tokens_total{" in line]
            assert all(line.endswith(" 0.0") for line in counted)
        async with hand_hub(tmp_path, load(), worker="w-9") as again:  # not at once
            assert "has broken the protocol" in await again.refusal()
        await honest_answers(stack, client)


async def test_the_first_answer_holds_and_what_follows_it_is_ignored(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        waiting = asyncio.create_task(ask(client, "one"))
        i = (await hub.call()).call_id
        hub.say(CallEnded(i, "ok", body=GOOD), CallEnded(i, "ok", body=BAD), Piece(i, b"bad"))
        hub.say(CallRefused(i, "full"), CallEnded("unknown", "ok", body=BAD))
        assert (await waiting).marker == "good"
        waiting = asyncio.create_task(ask(client, "two"))
        second = (await hub.call()).call_id
        hub.say(CallEnded(i, "ok", body=BAD), CallEnded(second, "ok", body=GOOD))
        assert (await waiting).marker == "good"


async def test_a_call_refused_twice_is_tried_once_elsewhere(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        host = await start_host(tmp_path / "honest")
        await stack.hub.admit(replica_of(host, calls_max=1))
        await stack.until_ready(2)
        busy = [asyncio.create_task(ask(client, "wait")) for _ in range(2)]
        call = await hub.call()  # of equally loaded replicas each gets one
        other = asyncio.create_task(ask(client, "own"))
        refused = (await hub.call()).call_id
        hub.say(*[CallRefused(refused, "full")] * 3)
        await stack.until_load(queued=1)  # it waits at the other one
        assert not other.done()
        for task in (*busy, other):
            task.cancel()
        del call
        await host.close()


async def test_a_stream_beyond_its_credit_closes_the_link_before_it_fills_the_router(
    tmp_path: Path,
) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        opening = asyncio.create_task(ask(client, "one", stream=True))
        i = (await hub.call()).call_id
        sent, most = 0, 16 << 20
        piece = Piece(i, b"data: {}\n\n" + b":" * 1000 + b"\n\n")
        (pending,) = stack.router._calls._pending.values()
        while not hub.writer.is_closing() and sent < most:
            hub.say(*[piece] * 40)  # one read of the router's socket: no client takes it meanwhile
            sent += 40 * len(piece.data)
            try:
                await hub.writer.drain()
            except ConnectionError:
                break
            assert pending.unread_bytes <= CREDIT_BYTES + len(piece.data)
        await until(lambda: stack.router._calls.replicas.count(SERVICE) == 0)
        with pytest.raises(openai.APIError):
            async for _ in await opening:
                pass
        await honest_answers(stack, client)


def _profiled(sizes: tuple[int, ...], seconds: tuple[float, ...]) -> ReplicaLoads:
    """Returns a report that its router could not pass on to the control plane."""
    return ReplicaLoads((msgspec.structs.replace(load(), sizes=sizes, seconds=seconds),))


def _taken(times: CallTimes) -> ReplicaLoads:
    """Returns a report that would spoil the sums of a component."""
    return ReplicaLoads((load(),), times={load().replica_id: times})


FLOODS = {
    "reports": lambda: [ReplicaLoads((load(),))] * (LOADS_PER_S + 1),
    "frames of calls that it has not": lambda: [Piece("x", b"")] * (STRAY_FRAMES_PER_S + 1),
    "replicas": lambda: [ReplicaLoads(tuple(load(f"r{n}") for n in range(REPLICAS_MAX + 1)))],
    "a replica with endless room": lambda: [ReplicaLoads((load(calls_max=1 << 40),))],
    "a replica with negative load": lambda: [ReplicaLoads((load(calls_max=-5),))],
    "times that are not numbers": lambda: [_profiled((1, 2), (0.1, float("nan")))],
    "times without end": lambda: [_profiled((1,), (float("inf"),))],
    "times below 0": lambda: [_profiled((1,), (-1.0,))],
    "sizes that do not ascend": lambda: [_profiled((1, 1), (0.1, 0.2))],
    "sizes that do not begin with 1": lambda: [_profiled((2,), (0.1,))],
    "fewer calls than none": lambda: [_taken(CallTimes(calls=-1))],
    "a wait that is no number": lambda: [_taken(CallTimes(1, float("nan")))],
    "computing without end": lambda: [_taken(CallTimes(1, 0.0, float("inf")))],
    "hellos": lambda: [HubHello(1, "w-8", "i", ())],
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_closes_the_link_and_others_are_answered(tmp_path: Path, name: str) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        hub.say(*FLOODS[name]())
        await hub.refusal()
        await honest_answers(stack, client)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 1 << 30),
        struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1",
        struct.pack(">I", 2000) + b"\x91" * 2000,
        struct.pack(">I", 9) + msgspec.msgpack.encode([["no-tag"]]) + b"\0",
    ],
    ids=["huge", "no msgpack", "nested", "unknown kind"],
)
async def test_a_malformed_frame_closes_the_link_and_others_are_answered(
    tmp_path: Path, data: bytes
) -> None:
    async with attacked(tmp_path) as (stack, hub), stack.client as client:
        hub.writer.write(data)
        await hub.refusal()
        await honest_answers(stack, client)


async def test_a_frame_before_the_hello_may_not_be_large(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "hubs"))
        writer.write(struct.pack(">I", 2 << 20))
        await reader.read()
        writer.close()
        await honest_answers(stack, client)
