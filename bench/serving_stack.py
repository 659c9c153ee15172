"""Starts our router, hub and engine host, each a process of its own, as ``fmesh serve`` does.

The worker agent and the control plane are left out: no call passes through them.
"""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from serving_load import Contestant

from flowmesh_core.protocol.messages import PrewarmSpec, RouterAddress, ServingReplica
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.units import Digest
from flowmesh_serving.service_file import write_services
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.ipc.frames import FromHost, HostInput, ListenForCalls, Loaded, Start
from flowmesh_worker.serving.hub_process import HubProcess

MODEL = "bench"
_SERVICE, _NAMESPACE = "bench/model", "bench"
_IN_FLIGHT = 1024
MEMORY_MIB = 6000
_CLOSE_WITHIN_S = 10.0
_ECHO = "flowmesh_worker.engines.testing.echo:Echo"
_GENERATE = "flowmesh_worker.engines.llm.generate:LlmGenerate"
CHAT = "/v1/chat/completions"


class ServingStack:
    """A router and, unless it is alone, a hub with one engine host.

    Attributes:
        url: of the router.
        tokens: of the service, by the namespace that calls it.
        processes: process ids of ``router``, ``hub`` and ``host``.
        messages: of the host, once it has loaded its engine.
    """

    def __init__(self, folder: Path, namespaces: Sequence[str] = (_NAMESPACE,)) -> None:
        folder.mkdir()
        self.url = ""
        self.tokens = {namespace: secrets.token_hex(16) for namespace in namespaces}
        self.processes: dict[str, int] = {}
        self.messages: asyncio.Queue[FromHost] = asyncio.Queue()
        self._folder = folder
        self._hub = HubProcess("bench", lambda _: None)

    def headers(self, namespace: str = "") -> dict[str, str]:
        """Returns the headers of a namespace's requests; without a name, of the first one's."""
        token = self.tokens[namespace or next(iter(self.tokens))]
        return {"Authorization": f"Bearer {token}"}

    def contestant(self, name: str, body: str, path: str = CHAT, status: int = 200) -> Contestant:
        """Returns the stack as a target of requests."""
        return Contestant(name, self.url + path, body, self.processes, self.headers(), status)

    async def start_router(self) -> asyncio.subprocess.Process:
        """Starts the router; returns its process once it listens."""
        ready = self._folder / "ready"
        tokens = tuple(ServiceToken(token_hash(t), name) for name, t in self.tokens.items())
        entry = ServiceEntry(_SERVICE, MODEL, tokens, in_flight_max=_IN_FLIGHT)
        write_services(self._folder / "services.json", (entry,))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flowmesh_serving.router", "--hubs", str(self._hubs)),
            *("--services", str(self._folder / "services.json"), "--ready-file", str(ready)),
            *("--replica-wait-s", "0"),  # a router alone refuses at once
        )
        while not ready.exists():
            if process.returncode is not None:
                sys.exit("the router did not start")
            await asyncio.sleep(0.02)
        self.url = ready.read_text()
        self.processes["router"] = process.pid
        return process

    @contextlib.asynccontextmanager
    async def host(self, start: Start, replicas: int = 1) -> AsyncIterator[HostProcess]:
        """Starts an engine host that is several replicas, and a hub that connects it."""
        host = HostProcess(self.messages.put_nowait, lambda _: None, lambda _: None)
        hub = self._hub
        try:
            await host.start(host_environment(os.environ, start.threads))
            host.send(start)
            loaded = await self.messages.get()
            if not isinstance(loaded, Loaded):
                sys.exit(f"the engine does not load: {loaded}")
            host.send(ListenForCalls(str(self._calls)))
            hub.start(1, (RouterAddress(f"unix:{self._hubs}"),))
            for number in range(replicas):
                hub.admit(1, self._calls, self._replica(number))
            await self._until_ready(replicas)
            self.processes |= {"hub": hub.pid, "host": host.pid}
            yield host
        finally:
            await hub.close()
            await host.close(_CLOSE_WITHIN_S)

    def use_targets(self, *, ttft_s: float = 0.0, tpot_s: float = 0.0) -> None:
        """Has the engine of a single replica keep these targets from now on."""
        replica = msgspec.structs.replace(self._replica(0), ttft_s=ttft_s, tpot_s=tpot_s)
        self._hub.admit(1, self._calls, replica)

    @property
    def _hubs(self) -> Path:
        return self._folder / "hubs"

    @property
    def _calls(self) -> Path:
        return self._folder / "calls"

    async def _until_ready(self, replicas: int) -> None:
        import aiohttp  # noqa: PLC0415 - used here alone

        async with aiohttp.ClientSession(headers=self.headers()) as client:
            while True:
                async with client.get(f"{self.url}/v1/models/{MODEL}") as response:
                    if (await response.json()).get("ready_replicas") == replicas:
                        return
                await asyncio.sleep(0.02)

    def _replica(self, number: int) -> ServingReplica:
        opening = PrewarmSpec(Digest(""), "", 1, 1)  # the hub does not read it
        salts = {name: f"salt-{name}" for name in self.tokens}
        name = f"{_SERVICE}/model/r1/{number}"
        return ServingReplica(name, _SERVICE, "model", "r1", opening, salts=salts)


def echo_start(folder: Path, calls_max: int) -> Start:
    """Returns the start of ``test.echo``, which answers a request with its own text."""
    return _start(folder, "test.echo", _ECHO, {}, {"callsMax": calls_max})


def model_start(folder: Path, model: Path, memory_mib: int = MEMORY_MIB) -> Start:
    """Returns the start of ``llm.generate`` with a model in float32 under vLLM."""
    params = dict(model_settings(folder).signature_params)
    tree = {"model": HostInput("tree", Digest("0" * 64), (str(model),))}
    start = _start(folder, "llm.generate", _GENERATE, tree, params)
    return msgspec.structs.replace(start, memory_mib=memory_mib)


def model_settings(scratch: Path, memory_mib: int = MEMORY_MIB) -> HostSettings:
    """Returns the settings of an engine host with a model, which vLLM's own server gets too."""
    params = {"dtype": "float32", "batchInvariant": True, "implementation": "vllm"}
    return HostSettings((), memory_mib, os.cpu_count() or 1, params, scratch)


def _start(
    folder: Path, engine: str, loads: str, inputs: dict[str, HostInput], params: dict[str, Any]
) -> Start:
    folder.mkdir()
    return Start(engine, loads, inputs, (), MEMORY_MIB, os.cpu_count() or 1, params, str(folder))


@contextlib.asynccontextmanager
async def router_alone(
    folder: Path, namespaces: Sequence[str] = (_NAMESPACE,)
) -> AsyncIterator[ServingStack]:
    """Yields a router without a replica: it answers chats with an error after all its checks."""
    stack = ServingStack(folder, namespaces)
    process = await stack.start_router()
    try:
        yield stack
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def serving_stack(
    folder: Path, start: Start, replicas: int = 1, namespaces: Sequence[str] = (_NAMESPACE,)
) -> AsyncIterator[ServingStack]:
    """Yields a router, a hub and an engine host that is ready, for callers of these namespaces."""
    async with router_alone(folder, namespaces) as stack, stack.host(start, replicas):
        yield stack


def chat_body(text: str, **more: Any) -> str:
    """Returns a chat request as JSON."""
    messages = [{"role": "user", "content": text}]
    return msgspec.json.encode({"model": MODEL, "messages": messages, **more}).decode()
