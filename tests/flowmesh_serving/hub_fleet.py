"""Two routers and some workers' hubs and engine hosts, each a process that can be killed.

The agents and the control plane are left out: no call passes through them, and an agent waits
longer after each end of a host before it starts the next.
"""

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import aiohttp
from tests.flowmesh_serving.echo_fabric import ROUTERS
from tests.flowmesh_serving.stack import (
    MODEL,
    SALTS,
    SERVICE,
    TOKEN,
    Host,
    services,
    start_host_process,
    until,
)
from tests.flowmesh_serving.test_lost_processes import router_command

from flowmesh_core.protocol.messages import PrewarmSpec, RouterAddress, ServingReplica
from flowmesh_core.units import Digest
from flowmesh_serving.service_file import write_services
from flowmesh_worker.ipc.frames import Start
from flowmesh_worker.serving.hub_process import HubProcess

_OPENING = PrewarmSpec(Digest(""), "", 1, 1)  # the hub does not read it


class Lost(StrEnum):
    """What of a worker is killed."""

    HOST = "host"
    HUB = "hub"
    BOTH = "both"


@dataclass
class HubWorker:
    """A worker without its agent.

    Attributes:
        folders: of the engine hosts that it has had; the last is of the one that runs.
    """

    name: str
    root: Path
    start: Start
    routers: tuple[RouterAddress, ...]
    folders: list[Path] = field(default_factory=list)
    _hub_id: int = 0
    _hub: HubProcess = field(init=False)
    _host: Host = field(init=False)

    def __post_init__(self) -> None:
        self._hub = HubProcess(self.name, lambda _: None)

    async def start_host(self) -> None:
        """Starts the engine host."""
        self.folders.append(self.root / f"{self.name}-{len(self.folders)}")
        self._host = await start_host_process(self.folders[-1], self.start)

    def start_hub(self) -> None:
        """Starts the hub, which knows no replica yet."""
        self._hub_id += 1
        self._hub.start(self._hub_id, self.routers)

    def admit(self) -> None:
        """Has the hub take calls for the host."""
        name = f"{SERVICE}/llm/r1/{self.name}"
        replica = ServingReplica(name, SERVICE, "llm", "r1", _OPENING, 0, SALTS)
        self._hub.withdraw(name)
        self._hub.admit(len(self.folders), self._host.socket, replica)

    def kill(self, lost: Lost) -> None:
        """Kills processes; returns before they have ended."""
        if lost is not Lost.HUB:
            os.killpg(self._host.pid, signal.SIGKILL)
        if lost is not Lost.HOST:
            os.kill(self._hub.pid, signal.SIGKILL)

    async def start_again(self, lost: Lost) -> None:
        """Starts what was killed once that has ended."""
        if lost is not Lost.HUB:
            await self._host.ended
            await self.start_host()
        if lost is not Lost.HOST:
            await until(lambda: not self._hub.pid)
            self.start_hub()
        self.admit()

    async def close(self) -> None:
        """Ends both processes."""
        await self._hub.close()
        await self._host.close()


@dataclass
class HubFleet:
    """The processes.

    Attributes:
        urls: of the routers, by name.
    """

    workers: list[HubWorker]
    http: aiohttp.ClientSession
    urls: dict[str, str] = field(default_factory=dict)
    trust: ssl.SSLContext | bool = True

    async def until_ready(self) -> None:
        """Waits until each router has all replicas."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with asyncio.timeout(60):
            for url in self.urls.values():
                while True:
                    async with self.http.get(f"{url}/v1/models/{MODEL}", headers=headers) as found:
                        if (await found.json()).get("ready_replicas") == len(self.workers):
                            break
                    await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def hub_fleet(root: Path, start: Start, workers: int) -> AsyncIterator[HubFleet]:
    """Yields the processes, each worker with a replica that is ready at both routers."""
    routers = tuple(RouterAddress(f"unix:{root / name / 'hubs'}") for name in ROUTERS)
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        made = [HubWorker(f"worker-{n}", root, start, routers) for n in range(workers)]
        fleet = HubFleet(made, http)
        for name in ROUTERS:
            (root / name).mkdir()
            write_services(root / name / "services.json", services(in_flight_max=256))
            process = await asyncio.create_subprocess_exec(*router_command(root / name))
            stack.push_async_callback(process.wait)
            stack.callback(process.terminate)
            await until((root / name / "url").exists)
            fleet.urls[name] = (root / name / "url").read_text()
        for worker in made:
            await worker.start_host()
            stack.push_async_callback(worker.close)
            worker.start_hub()
            worker.admit()
        await fleet.until_ready()
        yield fleet
