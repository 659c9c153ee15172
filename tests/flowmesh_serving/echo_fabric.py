"""A whole fabric of processes that serves ``test.echo``: a leader, two workers, two routers.

Each process can be killed and is started again, as Kubernetes would. The workers may also serve a
service of Python components in sandboxes.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import aiohttp
import psutil
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.test_restart import Elsewhere
from tests.flowmesh_serving import array_service
from tests.flowmesh_serving.planning_control import replica_id
from tests.flowmesh_serving.stack import SERVICE, services, until
from tests.flowmesh_serving.test_lost_processes import router_command
from tests.flowmesh_serving.values_in_memory import values_below

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_serving.service_file import write_services

WORKERS = ("local-0", "local-1")
ROUTERS = ("router-0", "router-1")


class Part(StrEnum):
    """A process of a worker; the value is what its command line has."""

    AGENT = "flowmesh_worker"
    HUB = "flowmesh_worker.serving.hub"
    HOST = "flowmesh_worker.host"
    SANDBOX = "flowmesh_worker.engines.code.resident"


@dataclass
class EchoFabric:
    """The processes of a fabric.

    Attributes:
        replicas: how many there are when all are ready, by service.
        urls: of the routers, by name.
        trust: verifies routers that have a certificate.
    """

    root: Path
    leader: Elsewhere
    http: aiohttp.ClientSession
    fabric: Fabric
    replicas: dict[str, int] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    routers: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    trust: ssl.SSLContext | bool = True

    def router_command(self, name: str) -> tuple[str, ...]:
        """Returns what starts a router, without its port."""
        return router_command(self.root / name)

    async def start_router(self, name: str) -> None:
        """Starts a router, on the port that it had before."""
        folder = self.root / name
        ready = folder / "url"
        ready.unlink(missing_ok=True)
        port = self.urls.get(name, ":0").rpartition(":")[2]
        with (folder / "log").open("ab") as log:
            self.routers[name] = await asyncio.create_subprocess_exec(
                *self.router_command(name), "--port", port, stderr=log
            )
        await until(ready.exists)
        self.urls[name] = ready.read_text()

    async def start_worker(self, name: str) -> None:
        """Starts a worker, which has to load its replica."""
        self.fabric.worker(name, "--orphan-timeout", "300")

    async def until_ready(self) -> None:
        """Waits until each router has all replicas."""
        wanted = self.wanted_lines()
        async with asyncio.timeout(90):
            for url in self.urls.values():
                while not wanted <= set(await self.metrics(url)):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.02)

    def wanted_lines(self) -> set[str]:
        """Returns what the metrics of a router that has all replicas say of them."""
        return {
            f'flowmesh_service_replicas{{service="{service}"}} {float(count)}'
            for service, count in self.replicas.items()
        }

    async def metrics(self, url: str) -> list[str]:
        """Returns the lines of a router's metrics; none while it does not answer."""
        try:
            async with self.http.get(f"{url}/metrics", ssl=self.trust) as response:
                return (await response.text()).splitlines()
        except aiohttp.ClientError:
            return []

    async def pids_of(self, worker: str, part: Part) -> list[int]:
        """Waits until a worker has processes of a kind; of the hosts, only those with calls."""
        async with asyncio.timeout(90):
            while not (found := self._pids_of(worker, part)):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            return found

    def _pids_of(self, worker: str, part: Part) -> list[int]:
        agent = self.fabric.workers[worker].pid
        if part == Part.AGENT:
            return [agent]
        found = []
        for process in psutil.Process(agent).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if part in process.cmdline() and (part != Part.HOST or _listens(process)):
                    found.append(process.pid)
        return found

    def values(self) -> list[str]:
        """Returns the values of stages that any process of a worker has in shared memory."""
        agents = self.fabric.workers.values()
        return [value for agent in agents for value in values_below(agent.pid)]

    async def close(self) -> None:
        """Ends all processes."""
        await asyncio.to_thread(self.fabric.close)
        self.leader.kill()
        for process in self.routers.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _listens(process: psutil.Process) -> bool:
    """Returns whether a host has a socket for calls: others are kept prepared."""
    return any(c.laddr for c in process.net_connections("unix"))


@contextlib.asynccontextmanager
async def echo_fabric(
    root: Path, workers: int = 2, *, with_arrays: bool = False
) -> AsyncIterator[EchoFabric]:
    """Yields a fabric with a replica on each worker, ready at both routers, for two tenants.

    Args:
        root: for all files.
        workers: how many.
        with_arrays: the workers also have the replicas of ``array_service``.
    """
    leader = Elsewhere(root, "tests.flowmesh_serving.planning_control")
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        made = EchoFabric(root, leader, http, Fabric(root, leader, http))  # type: ignore[arg-type]
        names = WORKERS[:workers]
        made.replicas = {SERVICE: workers}
        listed: tuple[ServiceEntry, ...] = ()
        if with_arrays:
            (root / "arrays").touch()
            listed = (array_service.entry(names),)
            made.replicas[listed[0].service] = len(array_service.COMPONENTS) * workers
        try:
            placed = {replica_id(worker): worker for worker in names}
            tokens = (*services()[0].tokens, ServiceToken(token_hash("b"), "team-b"))
            for name in ROUTERS:
                (root / name).mkdir()
                echo = services(placed=placed, in_flight_max=256, tokens=tokens)
                write_services(root / name / "services.json", (*echo, *listed))
                await made.start_router(name)
            await leader.start(http)
            for name in names:
                await made.start_worker(name)
            await made.until_ready()
            yield made
        finally:
            await made.close()
