"""Attacker: W, a process of the user that reaches the sockets of hubs, or another worker's hub.
Action: sends values of a request without the key, and of stages that are not its own.
Must not happen: a stage gets them; the hub of the route's own worker delivers its value.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import python, stage_stack

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    PassedValue,
    PeerHello,
    PeerRefused,
    PeerValue,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_socket import connect_with_descriptors

pytestmark = pytest.mark.slow
CODE = """
import time

def make(batch):
    time.sleep(1)
    return [call["q"] for call in batch]

def same(batch):
    return [call["value"] for call in batch]
"""
SPEC: dict[str, Any] = {
    "components": {"one": python(CODE, "make"), "two": python(CODE, "same", ownHost=True)},
    "stages": [
        {"name": "made", "component": "one", "inputs": {"q": "request.q"}},
        {"name": "used", "component": "two", "inputs": {"value": "made"}},
    ],
    "reply": {"out": "used"},
}


async def refused(socket: Path, *messages: PeerHello | PeerValue) -> None:
    """Sends frames over a new link, and waits until the hub closes it."""
    lost = asyncio.Event()
    channel = Channel[PeerRefused](PeerRefused, print, lost.set)
    connection, descriptors = await connect_with_descriptors(str(socket))
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: channel, sock=connection)
    for message in messages:
        channel.send(message)
    async with asyncio.timeout(10):
        await lost.wait()
    descriptors.close()


async def test_only_the_routes_own_hub_delivers_a_value(tmp_path: Path) -> None:
    async with stage_stack(tmp_path, SPEC, {"w1": ["one"], "w2": ["two"]}) as stack:
        second = stack.hubs["w2"]._stages
        socket = tmp_path / "peers" / second.peers.name
        asking = asyncio.create_task(stack.ask({"q": "right"}))
        await until(lambda: len(second._requests) == 1)
        (request,) = second._requests.values()
        key = request.run.peers["w1"].key

        def forged(stage: str, source: str) -> PeerValue:
            value = PassedValue(b'"forged"')
            return PeerValue(request.run.request_id, 1, stage, source, value)

        for worker, shown, value in (
            ("w1", "", forged("used", "made")),
            ("w1", key[:-1] + "x", forged("used", "made")),
            ("w3", key, forged("used", "made")),
            ("w1", key, forged("used", "used")),
            ("w1", key, forged("made", "made")),
        ):
            await refused(socket, PeerHello(SERVING_VERSION, worker, shown), value)
        await refused(socket, forged("used", "made"))
        stack.hubs["w1"]._stages.peer_refused("w3", PeerRefused(request.run.request_id, 1))
        assert await asking == (200, {"out": "right"})
        assert request.version == 1  # nothing had it routed again
