"""The host's loop, talked to over its socket without a process around it."""

import asyncio
import socket
from pathlib import Path

from flowmesh_core.errors import FailureKind
from flowmesh_core.units import Digest
from flowmesh_worker.host.server import HostServer
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import (
    AttemptEnded,
    Cancel,
    Close,
    FromHost,
    Loaded,
    RunAttempt,
    Start,
)

LOADS = "flowmesh_worker.engines.testing.sleep:Sleep"


async def test_an_attempt_stopped_as_it_starts_still_reports_how_it_ended(
    tmp_path: Path,
) -> None:
    ours, theirs = socket.socketpair()
    heard: asyncio.Queue[FromHost] = asyncio.Queue()
    server = HostServer(theirs)
    serving = asyncio.ensure_future(server.serve())
    channel = await Channel[FromHost].over(ours, FromHost, heard.put_nowait, lambda: None)
    channel.send(Start("test.sleep", LOADS, {}, (), 64, 1, {}, str(tmp_path)))
    assert isinstance(await heard.get(), Loaded)
    channel.send(RunAttempt("a1", Digest("0" * 64), {"seconds": 600}, {}, {}, "", "", 0, {}))
    channel.send(Cancel("a1"))
    messages = [await heard.get()]
    while not isinstance(messages[-1], AttemptEnded):
        messages.append(await heard.get())
    assert messages[-1].failure is not None
    assert messages[-1].failure.kind == FailureKind.CANCELLED.value
    channel.send(Close())
    await serving
    channel.close()
