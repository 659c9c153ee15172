"""A router, a hub and an engine host in this process, connected by their real sockets."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import openai

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_serving.call_spans import CallSpans
from flowmesh_serving.router.server import RouterServer
from flowmesh_serving.router.settings import RouterSettings
from flowmesh_serving.service_file import write_services
from flowmesh_worker.host.server import HostServer
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import (
    Close,
    FromHost,
    ListenForCalls,
    Loaded,
    Start,
    ToHost,
)
from flowmesh_worker.ipc.hub_frames import AdmitReplica, ReplicaUsage
from flowmesh_worker.serving.service_hub import ServiceHub

ECHO = "flowmesh_worker.engines.testing.echo:Echo"
SERVICE, MODEL, TOKEN = "team-a/echo", "echo", "fm-token-of-team-a"
SALTS = {"team-a": "salt-a"}


@dataclass
class Stack:
    """The parts of a running stack."""

    folder: Path
    router: RouterServer
    hub: ServiceHub
    usage: list[ReplicaUsage] = field(default_factory=list)

    @property
    def client(self) -> openai.AsyncOpenAI:
        return self.client_of(TOKEN)

    def client_of(self, token: str) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.router.url}/v1", api_key=token, max_retries=0)

    async def until_load(self, **least: int) -> None:
        """Waits until so many calls are ``running`` or ``queued`` at the first replica."""
        await until(lambda: all(getattr(self.hub._loads()[0], k) >= n for k, n in least.items()))

    async def until_ready(self, replicas: int = 1) -> None:
        async with self.client as client:
            while True:
                model = await client.models.retrieve(MODEL)
                if model.ready_replicas >= replicas:  # type: ignore[attr-defined]
                    return
                await asyncio.sleep(0.005)


@dataclass
class Host:
    """An engine host: a process of its own, or in this process."""

    send: Callable[[ToHost], None]
    ended: Awaitable[object]
    socket: Path
    pid: int = 0

    async def close(self) -> None:
        self.send(Close())
        await self.ended


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


async def start_host(folder: Path, loads: str = ECHO) -> Host:
    """Starts an engine host in this process that listens for calls."""
    ours, theirs = socket.socketpair()
    received: asyncio.Queue[FromHost] = asyncio.Queue()
    task = asyncio.ensure_future(HostServer(theirs).serve())
    channel = await Channel[FromHost].over(ours, FromHost, received.put_nowait, lambda: None)
    return await _listening(
        folder, Start("engine", loads, {}, (), 64, 1, {}, ""), received, channel.send, task
    )


async def start_host_process(folder: Path, start: Start) -> Host:
    """Starts an engine host as a process of its own, as workers do."""
    received: asyncio.Queue[FromHost] = asyncio.Queue()
    ended = asyncio.get_running_loop().create_future()
    process = HostProcess(received.put_nowait, print, ended.set_result)
    await process.start(host_environment(os.environ, start.threads))
    host = await _listening(folder, start, received, process.send, ended)
    return replace(host, pid=process.pid)


async def _listening(
    folder: Path,
    start: Start,
    received: "asyncio.Queue[FromHost]",
    send: Callable[[ToHost], None],
    ended: Awaitable[object],
) -> Host:
    os.makedirs(folder, exist_ok=True)
    send(msgspec.structs.replace(start, scratch=str(folder)))
    loaded = await received.get()
    assert isinstance(loaded, Loaded), loaded
    path = folder / "calls"
    send(ListenForCalls(str(path)))
    return Host(send, ended, path)


def replica_of(
    host: Host, number: int = 1, calls_max: int = 0, salts: dict[str, str] = SALTS
) -> AdmitReplica:
    """Returns the message that has a hub take calls for a host."""
    replica_id = f"{SERVICE}/llm/r1/{number}"
    return AdmitReplica(replica_id, SERVICE, str(host.socket), calls_max, salts)


def services(**changes: object) -> tuple[ServiceEntry, ...]:
    """Returns the service of these tests."""
    token = ServiceToken(token_hash(TOKEN), "team-a")
    return (ServiceEntry(SERVICE, MODEL, **{"tokens": (token,), **changes}),)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def router_of(
    folder: Path,
    listed: tuple[ServiceEntry, ...] | None = None,
    spans: CallSpans | None = None,
    **settings: Any,
) -> AsyncIterator[Stack]:
    """Yields a router on the socket ``hubs`` of a folder, and a hub that is not connected to it."""
    write_services(folder / "services.json", services() if listed is None else listed)
    router = RouterServer(
        RouterSettings("127.0.0.1", 0, folder / "hubs", folder / "services.json", **settings),
        spans,
    )
    await router.start()
    usage: list[ReplicaUsage] = []
    hub = ServiceHub("worker-1", usage.append)
    try:
        yield Stack(folder, router, hub, usage)
    finally:
        hub.close()
        await router.stop()


@contextlib.asynccontextmanager
async def serving_stack(
    folder: Path, listed: tuple[ServiceEntry, ...] | None = None, **settings: Any
) -> AsyncIterator[Stack]:
    """Yields a router with one hub that has no replica."""
    async with router_of(folder, listed, **settings) as stack:
        stack.hub.use_routers((f"unix:{folder / 'hubs'}",))
        yield stack


@contextlib.asynccontextmanager
async def echo_stack(
    folder: Path, *, calls_max: int = 0, salts: dict[str, str] = SALTS, **more: object
) -> AsyncIterator[Stack]:
    """Yields a stack with one ready replica of ``test.echo``."""
    async with serving_stack(folder, **more) as stack:  # type: ignore[arg-type]
        host = await start_host(folder / "host")
        await stack.hub.admit(replica_of(host, calls_max=calls_max, salts=salts))
        await stack.until_ready()
        yield stack
        await host.close()


def says(text: str) -> Any:
    """Returns the messages of a chat in which the user says this."""
    return [{"role": "user", "content": text}]


async def ask(client: openai.AsyncOpenAI, text: str, **more: Any) -> Any:
    """Sends a chat request."""
    return await client.chat.completions.create(model=MODEL, messages=says(text), **more)


async def until_open(client: openai.AsyncOpenAI, calls: int) -> None:
    """Waits until this many calls run in the engine, besides the one that asks."""
    async with asyncio.timeout(30):
        while True:
            if (await ask(client, "how many")).open_calls == calls:
                return
            await asyncio.sleep(0.005)
