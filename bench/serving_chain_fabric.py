"""Three components that do nothing, in a chain: what a request through all processes costs.

``python bench/serving_chain_fabric.py`` starts a router, hubs and component hosts as processes, as
``fmesh serve`` does, and sends requests of 1 KiB over connections that stay open. It prints a JSON
line for each placement and number of concurrent requests: requests a second, p50 and p99 in
milliseconds, and the processor time of router, hubs and hosts per request. Placements: ``one-host``
has all components in one trusted host, where values pass by reference; ``own-hosts`` has a trusted
host each on one worker; ``sandboxed`` has all in one resident sandbox; ``three-workers`` has a
worker each, with the router between them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.graph.component_plan import ComponentPlan
from flowmesh_core.graph.service_plan import compile_service
from flowmesh_core.graph.service_stages import compile_stages
from flowmesh_core.openai.stage_check import stage_problems
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.spec.service import FlowMeshService
from flowmesh_serving.service_file import write_services
from flowmesh_worker.engines.code.component import TRUSTED_VARIABLE
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import Close, FromHost, ListenForCalls, Loaded, Start
from flowmesh_worker.ipc.hub_frames import AdmitReplica, FromHub, ToHub, UseRouters

SERVICE, TOKEN = "bench/chain", "fm-bench"
CODE = "def same(batch):\n    return [call['x'] for call in batch]\n"
STAGES = ("a", "b", "c")
BODY_BYTES = 1024
_READY_S = 60.0
_MS = 1000.0

PLACEMENTS: dict[str, tuple[dict[str, Any], Sequence[Sequence[str]]]] = {
    "one-host": ({"trusted": True}, [STAGES]),
    "own-hosts": ({"trusted": True, "ownHost": True}, [STAGES]),
    "sandboxed": ({}, [STAGES]),
    "three-workers": ({"trusted": True, "ownHost": True}, [("a",), ("b",), ("c",)]),
}
"""By name: how each component is declared, and the components of each worker."""


def service(component: dict[str, Any]) -> FlowMeshService:
    """Returns the chain."""
    sources = ("request.x", *STAGES)
    spec = {
        "components": {
            s: {"python": {"code": CODE, "function": "same"}, **component} for s in STAGES
        },
        "stages": [
            {"name": stage, "component": stage, "inputs": {"x": source}}
            for stage, source in zip(STAGES, sources, strict=False)
        ],
        "reply": {"x": STAGES[-1]},
    }
    return service_of(spec)


def service_of(spec: dict[str, Any]) -> FlowMeshService:
    """Returns the service of these benchmarks."""
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": "chain", "namespace": "bench"},
        "spec": spec,
    }
    return FlowMeshService.model_validate(document)


@dataclass
class Chain:
    """A running chain.

    Attributes:
        port: of the router.
        pids: of router, hubs and hosts.
    """

    port: int = 0
    pids: list[int] = field(default_factory=list)

    def processor_s(self) -> float:
        """Returns the processor time of all its processes and their children so far."""
        total = 0.0
        for pid in self.pids:
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    total += times.user + times.system
        return total


@contextlib.asynccontextmanager
async def running(folder: Path, placement: str) -> AsyncIterator[Chain]:
    """Yields a chain that answers requests."""
    component, workers = PLACEMENTS[placement]
    async with started(folder, service(component), workers) as chain:
        await _until_answered(chain)
        yield chain


@contextlib.asynccontextmanager
async def started(
    folder: Path, declared: FlowMeshService, workers: Sequence[Sequence[str]], slo_s: float = 0.0
) -> AsyncIterator[Chain]:
    """Yields the processes of a service, with these components a worker; they may still load."""
    token = ServiceToken(token_hash(TOKEN), "bench")
    graph = compile_stages(declared.spec, lambda *_: None, stage_problems)
    limits = {"in_flight_max": 256, "max_in_flight": 256}
    entry = ServiceEntry(SERVICE, "chain", (token,), graph=graph, slo_s=slo_s, **limits)
    write_services(folder / "services.json", (entry,))
    chain = Chain()
    async with contextlib.AsyncExitStack() as stack:
        await _start_router(stack, folder, chain)
        components = compile_service(declared, Catalog(contracts())).components
        for number, names in enumerate(workers):
            here = [c for c in components if c.name in names]
            await _start_worker(stack, folder, chain, f"w{number}", here)
        yield chain


async def _start_router(stack: contextlib.AsyncExitStack, folder: Path, chain: Chain) -> None:
    ready = folder / "url"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flowmesh_serving.router"),
        *("--hubs", str(folder / "hubs"), "--services", str(folder / "services.json")),
        *("--ready-file", str(ready)),
    )
    stack.callback(process.kill)
    async with asyncio.timeout(_READY_S):
        while not ready.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    chain.port = int(ready.read_text().rpartition(":")[2])
    chain.pids.append(process.pid)


async def _start_worker(
    stack: contextlib.AsyncExitStack,
    folder: Path,
    chain: Chain,
    worker: str,
    components: Sequence[ComponentPlan],
) -> None:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flowmesh_worker.serving.hub"),
        *(str(theirs.fileno()), str(os.getpid()), worker),
        pass_fds=(theirs.fileno(),),
    )
    stack.callback(process.kill)
    theirs.close()
    chain.pids.append(process.pid)
    hub = await Channel[FromHub].over(ours, FromHub, lambda _: None, lambda: None)
    _send(hub, UseRouters((f"unix:{folder / 'hubs'}",)))
    sockets: dict[str, Path] = {}
    for component in components:
        params = component.step.params
        key = repr(params)
        if key not in sockets:
            home = folder / f"{worker}-{component.name}"
            sockets[key] = await _start_host(stack, home, chain, params)
        replica_id = f"{SERVICE}/{component.name}/r1/{worker}"
        salts = {"bench": "salt"}
        _send(
            hub,
            AdmitReplica(
                replica_id, SERVICE, str(sockets[key]), 0, salts, component=component.name
            ),
        )


def _send(hub: "Channel[FromHub]", message: ToHub) -> None:
    hub.send(message)


async def _start_host(
    stack: contextlib.AsyncExitStack, home: Path, chain: Chain, params: dict[str, Any]
) -> Path:
    os.makedirs(home)
    received: asyncio.Queue[FromHost] = asyncio.Queue()
    ended = asyncio.get_running_loop().create_future()
    host = HostProcess(received.put_nowait, lambda _: None, ended.set_result)
    await host.start(host_environment({**os.environ, TRUSTED_VARIABLE: "1"}, 1))

    async def close() -> None:
        host.send(Close())
        await ended

    stack.push_async_callback(close)
    loads = "flowmesh_worker.engines.code.component:Component"
    host.send(Start("code.component", loads, {}, (), 512, 1, params, str(home)))
    loaded = await received.get()
    assert isinstance(loaded, Loaded), f"the host does not load: {loaded}"
    host.send(ListenForCalls(str(home / "calls")))
    chain.pids.append(host.pid)
    return home / "calls"


class Client:
    """One connection that sends one request after the other; cheaper than a library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        body = json.dumps({"x": "y" * (BODY_BYTES - 8)}).encode()
        head = (
            f"POST /v1/services/{SERVICE}:invoke HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._request = head.encode() + body
        self._reply = body

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Returns a connected client."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self) -> int:
        """Sends a request and returns the status; a wrong reply is an error."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        reply = await self._reader.readexactly(length)
        if status == 200 and json.loads(reply) != json.loads(self._reply):
            raise RuntimeError(f"the reply is wrong: {reply[:200]!r}")
        return status


async def _until_answered(chain: Chain) -> None:
    client = await Client.connect(chain.port)
    async with asyncio.timeout(_READY_S):
        while await client.ask() != 200:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)


async def measured(chain: Chain, concurrent: int, for_s: float) -> dict[str, float]:
    """Returns what a number of concurrent requests for some seconds take."""
    clients = [await Client.connect(chain.port) for _ in range(concurrent)]
    seconds: list[float] = []
    end_s = time.monotonic() + for_s

    async def asking(client: Client) -> None:
        while (began_s := time.monotonic()) < end_s:
            if await client.ask() != 200:
                raise RuntimeError("a request failed")
            seconds.append(time.monotonic() - began_s)

    processor_s, own_s, began_s = chain.processor_s(), time.process_time(), time.monotonic()
    await asyncio.gather(*map(asking, clients))
    took_s = time.monotonic() - began_s
    seconds.sort()
    count = len(seconds)
    return {
        "requests": count,
        "requests_per_s": round(count / took_s, 1),
        "p50_ms": round(seconds[count // 2] * _MS, 3),
        "p99_ms": round(seconds[min(count - 1, count * 99 // 100)] * _MS, 3),
        "processor_ms_per_request": round((chain.processor_s() - processor_s) / count * _MS, 4),
        "client_ms_per_request": round((time.process_time() - own_s) / count * _MS, 4),
    }


async def bench(placements: Sequence[str], concurrent: Sequence[int], for_s: float) -> None:
    """Prints a line for each placement and number of concurrent requests."""
    for placement in placements:
        with tempfile.TemporaryDirectory(prefix="fm-chain-") as folder:
            async with running(Path(folder), placement) as chain:
                await measured(chain, 8, for_s / 4)  # warms up, and measures the batch profiles
                for number in concurrent:
                    found = await measured(chain, number, for_s)
                    row = {"placement": placement, "concurrent": number, **found}
                    sys.stdout.write(json.dumps(row) + "\n")
                    sys.stdout.flush()


async def serve(placement: str, folder: Path) -> None:
    """Prints where the chain takes requests, and serves until standard input ends."""
    os.makedirs(folder)
    async with running(folder, placement) as chain:
        found = {
            "url": f"http://127.0.0.1:{chain.port}/v1/services/{SERVICE}:invoke",
            "headers": {"Authorization": f"Bearer {TOKEN}"},
            "body": json.dumps({"x": "y" * (BODY_BYTES - 8)}),
            "processes": {f"process {number}": pid for number, pid in enumerate(chain.pids)},
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Reads the command line and measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help="serve from this new folder, measure nothing")
    parser.add_argument("--placements", nargs="+", default=list(PLACEMENTS), choices=PLACEMENTS)
    parser.add_argument("--concurrent", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(serve(given.placements[0], given.serve))
        return
    asyncio.run(bench(given.placements, given.concurrent, given.seconds))


if __name__ == "__main__":
    main()
