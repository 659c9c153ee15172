"""A gateway that speaks the protocol, and workers that join it: agents here, hosts as processes."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from tests.blob_views import SCOPE, OneView, blobs_of, token_of

from flowmesh_core.dataset import dataset_digest, encode_manifest
from flowmesh_core.identity import canonical_bytes, digest_bytes, tree_identity
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Desired,
    EngineInstanceState,
    Hello,
    InputRef,
    PrewarmSpec,
    Refused,
    Sync,
    Welcome,
    decode_worker,
    encode,
)
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_core.units import Digest
from flowmesh_store.datasets import read_dataset, rows_to_chunks
from flowmesh_store.reachability import look_at
from flowmesh_store.store import Store, open_store
from flowmesh_store.tree import store_tree
from flowmesh_worker.agent.agent import Agent
from flowmesh_worker.agent.store_watch import StoreWatch
from flowmesh_worker.engines.registry import Engines, installed_engines
from flowmesh_worker.settings import WorkerSettings
from flowmesh_worker.shape import describe

_numbers = itertools.count(1)
WITHIN_S = 400.0  # for a machine that has much else to do


class Gateway:
    """The control plane's end, driven by a test."""

    def __init__(self) -> None:
        self.url = ""
        self.epoch = 1
        self.hellos: list[Hello] = []
        self.epochs_said: list[int] = []
        self.ends: dict[str, AttemptEnd] = {}
        self.ends_heard: list[str] = []
        self.progress: dict[str, list[AttemptProgress]] = {}
        self.lanes: tuple[EngineInstanceState, ...] = ()
        self.components: tuple[Any, ...] = ()
        self.logs: list[str] = []
        self.syncs: list[Sync] = []
        self.acknowledging = True
        self.refuse: Refused | None = None
        self.keep: Callable[[Hello], tuple[str, ...]] = lambda hello: tuple(
            p.attempt_id for p in hello.attempts
        )
        self.socket: web.WebSocketResponse | None = None
        self.sync_interval_s = 0.2
        self._changed = asyncio.Condition()
        self._seq = 0

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, compress=False)
        await socket.prepare(request)
        hello = decode_worker((await socket.receive()).data)
        assert isinstance(hello, Hello)
        if self.refuse is not None:
            await socket.send_bytes(encode(self.refuse))
            await socket.close()
            async with self._changed:
                self.hellos.append(hello)
                self._changed.notify_all()
            return socket
        await socket.send_bytes(encode(Welcome(PROTOCOL_VERSION, self.epoch, self.sync_interval_s)))
        self._seq = 0
        self.socket = socket
        await self._hear(
            hello, Sync(0, hello.attempts, hello.ended, hello.instances, hello.components), socket
        )
        await self.desire(full_state=True, keep=self.keep(hello))
        expected = 1
        async for raw in socket:
            assert raw.type is WSMsgType.BINARY
            sync = decode_worker(raw.data)
            assert isinstance(sync, Sync)
            assert sync.seq == expected
            expected += 1
            await self._hear(None, sync, socket)
        return socket

    async def _hear(self, hello: Hello | None, sync: Sync, socket: web.WebSocketResponse) -> None:
        async with self._changed:
            if hello is not None:
                self.hellos.append(hello)
                self.epochs_said.append(self.epoch)
            self.syncs.append(sync)
            for p in sync.progress:
                self.progress.setdefault(p.attempt_id, []).append(p)
            for end in sync.ended:
                self.ends[end.attempt_id] = end
                self.ends_heard.append(end.attempt_id)
            self.lanes = self.lanes if sync.instances is None else sync.instances
            self.components = self.components if sync.components is None else sync.components
            self.logs.extend(line.text for line in sync.logs)
            self._changed.notify_all()
        if sync.ended and self.acknowledging:
            await self.desire(acknowledged=tuple(e.attempt_id for e in sync.ended))

    async def until(self, condition: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(lambda: bool(condition()))
        return condition()

    async def desire(self, **changes: Any) -> None:
        socket = self.socket
        assert socket is not None
        if socket.closed:
            return
        self._seq += 1
        await socket.send_bytes(encode(Desired(epoch=self.epoch, seq=self._seq, **changes)))

    async def assign(self, *assignments: Assignment) -> None:
        await self.desire(assign=assignments)

    async def end(self, attempt_id: str, within_s: float = WITHIN_S) -> AttemptEnd:
        end: AttemptEnd = await self.until(lambda: self.ends.get(attempt_id), within_s)
        return end

    async def do(self, assignment: Assignment, within_s: float = WITHIN_S) -> AttemptEnd:
        await self.assign(assignment)
        return await self.end(assignment.attempt_id, within_s)

    async def joined(self, name: str) -> None:
        await self.until(lambda: any(h.shape.name == name for h in self.hellos))

    async def phase(self, attempt_id: str, phase: str) -> None:
        await self.until(lambda: any(p.phase == phase for p in self.progress.get(attempt_id, ())))


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serving() as one:
        yield one


@asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[Gateway]:
    one = Gateway()
    app = web.Application()
    app.router.add_get("/worker", one.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    address = runner.addresses[0]
    one.url = f"ws://127.0.0.1:{address[1]}"
    try:
        yield one
    finally:
        await runner.cleanup()


@dataclass
class World:
    """A store, a gateway and the workers that a test starts."""

    gateway: Gateway
    store: Store
    root: Path
    engines: Engines
    stack: AsyncExitStack
    agents: list[Agent] = field(default_factory=list)

    async def use_store(self, path: Path) -> None:
        """Another store for the workers that start from now on."""
        self.store = open_store(path)

    async def leave(self) -> None:
        """Ends the workers now."""
        await self.stack.aclose()

    def settings(self, **changes: Any) -> WorkerSettings:
        defaults: dict[str, Any] = {
            "gateway": self.gateway.url,
            "store": self.store.url,
            "name": "w1",
            "cache_dir": self.root / "cache",
            "memory_mib": 8192,
            "cpus": 2,
            "power_w": 50.0,
            "grace_s": 5.0,
            "orphan_timeout_s": 20.0,
        }
        return WorkerSettings(**(defaults | changes))

    def agent(
        self,
        settings: WorkerSettings,
        blobs: Any = None,
        hub: Any = None,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> Agent:
        """An agent that does not run yet; ``look`` looks at the store in its place."""
        shape = describe(settings, None, self.engines)
        store = OneView(blobs) if blobs else self.store
        watch = StoreWatch(look or partial(look_at, self.store))
        return Agent(settings, shape, self.engines, store, watch, hub=hub)

    async def worker(
        self,
        blobs: Any = None,
        hub: Any = None,
        look: Callable[[], Awaitable[None]] | None = None,
        **changes: Any,
    ) -> Agent:
        """An agent in this process, joined; ``hub`` makes its hub, ``look`` looks at the store."""
        settings = self.settings(**changes)
        agent = self.agent(settings, blobs, hub, look)
        task = asyncio.get_running_loop().create_task(agent.run())

        async def leave() -> None:
            agent.stop()
            agent.stop()
            await task

        self.stack.push_async_callback(leave)
        self.agents.append(agent)
        await self.gateway.joined(settings.name)
        return agent

    async def process(self, *arguments: str, name: str = "w1") -> asyncio.subprocess.Process:
        """A worker process of its own, joined."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flowmesh_worker",
            *("--gateway", self.gateway.url, "--store", self.store.url, "--name", name),
            *("--cache-dir", str(self.root / f"cache-{name}"), "--memory-mib", "8192"),
            *("--cpu-only", "--cpus", "2"),
            *arguments,
            env={**os.environ, "FLOWMESH_WORKER_TOKEN": "secret"},
        )

        async def end() -> None:
            if process.returncode is None:
                process.kill()
                await process.wait()

        self.stack.push_async_callback(end)
        await self.gateway.joined(name)
        return process

    def assignment(self, engine: str, **changes: Any) -> Assignment:
        """An assignment of an engine; ``params``, ``inputs`` and more by keyword."""
        number = next(_numbers)
        contract = self.engines.contract(engine)
        defaults: dict[str, Any] = {
            "attempt_id": f"a{number}",
            "action_id": digest_bytes(str(number).encode()),
            "signature": digest_bytes(f"{engine} of this test".encode()),
            "engine": engine,
            "contract": contract.version if contract else 1,
            "implementation": contract.implementation if contract else 1,
            "params": {},
            "fields": {},
            "inputs": {},
            "memory_mib": contract.base_memory_mib if contract else 64,
            "token": token_of(),
        }
        return Assignment(**(defaults | changes))

    def prewarm(self, engine: str, **changes: Any) -> PrewarmSpec:
        """A host to hold open, which assignments of the same signature find."""
        a = self.assignment(engine)
        defaults: dict[str, Any] = {
            "signature": a.signature,
            "engine": engine,
            "contract": a.contract,
            "implementation": a.implementation,
            "memory_mib": a.memory_mib,
            "read_scopes": (SCOPE,),
        }
        return PrewarmSpec(**(defaults | changes))

    async def model(self, name: str) -> InputRef:
        """A stored directory of that name as an input."""
        directory = self.root / "models" / name
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(f'{{"name": "{name}"}}')
        tree = await store_tree(blobs_of(self.store), directory)
        return InputRef(
            Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)
        )

    async def dataset(self, rows: Any, *, inline: bool = False) -> InputRef:
        """A stored data set as an input."""
        manifest, blobs = rows_to_chunks(rows)
        encoded = encode_manifest(manifest)
        blob = digest_bytes(encoded)
        if not inline:
            for digest, data in {**blobs, blob: encoded}.items():
                await blobs_of(self.store).put(digest, data)
        artifact = Artifact(
            "dataset", dataset_digest(manifest), blob, rows=manifest.row_count, manifest=manifest
        )
        return InputRef(artifact, blobs if inline else {})

    async def rows(self, end: AttemptEnd, port: str = "rows") -> list[dict[str, Any]]:
        """The rows of an output."""
        assert end.failure is None, end.failure

        async def fetch(digest: Digest) -> bytes:
            return end.inline.get(digest) or await blobs_of(self.store).get(digest)

        manifest = end.outputs[port].manifest
        assert manifest is not None
        return await read_dataset(fetch, manifest)

    @staticmethod
    def metrics(value: dict[str, Any]) -> InputRef:
        """Metrics as an input."""
        data = canonical_bytes(value)
        digest = digest_bytes(data)
        return InputRef(content_artifact("metrics", digest, value=value), {digest: data})


@pytest.fixture
async def world(gateway: Gateway, tmp_path: Path) -> AsyncIterator[World]:
    store = open_store(tmp_path / "store")
    async with AsyncExitStack() as stack:
        yield World(gateway, store, tmp_path, installed_engines(), stack)
