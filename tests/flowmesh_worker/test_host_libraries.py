"""What an engine imports while it works is told with the attempt that imported it."""

import asyncio
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flowmesh_core.units import Digest
from flowmesh_worker.host.server import HostServer
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import AttemptEnded, Close, FromHost, Loaded, RunAttempt, Start

LOADS = "flowmesh_worker.engines.testing.sleep:Sleep"


async def test_a_library_that_work_imports_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    heard: asyncio.Queue[FromHost] = asyncio.Queue()
    serving = asyncio.ensure_future(HostServer(theirs).serve())
    channel = await Channel[FromHost].over(ours, FromHost, heard.put_nowait, lambda: None)
    channel.send(Start("test.sleep", LOADS, {}, (), 64, 1, {}, str(tmp_path)))
    loaded = await heard.get()
    assert isinstance(loaded, Loaded)

    async def libraries(name: str) -> dict[str, str] | None:
        channel.send(RunAttempt(name, Digest("0" * 64), {"seconds": 0}, {}, {}, "", "", 0, {}))
        while not isinstance(message := await heard.get(), AttemptEnded):
            pass
        assert message.failure is None
        return message.libraries

    assert await libraries("a1") is None
    late = ModuleType("trl")
    late.__version__ = "9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl", late)
    assert await libraries("a2") == {**loaded.libraries, "trl": "9.9"}
    assert await libraries("a3") is None
    channel.send(Close())
    await serving
    channel.close()
