"""A whole fabric of processes that serves ``test.echo``: a leader, two workers, two routers.

Each process can be killed and is started again, as Kubernetes would. A load of requests checks each
answer against its question.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import psutil
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.test_restart import Elsewhere
from tests.flowmesh_serving.planning_control import replica_id
from tests.flowmesh_serving.stack import MODEL, TOKEN, says, services, until
from tests.flowmesh_serving.test_lost_processes import router_command

from flowmesh_core.protocol.router_services import ServiceToken, token_hash
from flowmesh_serving.service_file import write_services

WORKERS = ("local-0", "local-1")
ROUTERS = ("router-0", "router-1")
_LATE_S = 0.1
_HOST, _HUB = "flowmesh_worker.host", "flowmesh_worker.serving.hub"


@dataclass
class EchoFabric:
    """The processes of a fabric.

    Attributes:
        urls: of the routers, by name.
    """

    root: Path
    leader: Elsewhere
    http: aiohttp.ClientSession
    fabric: Fabric
    urls: dict[str, str] = field(default_factory=dict)
    routers: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start_router(self, name: str) -> None:
        """Starts a router, on the port that it had before."""
        folder = self.root / name
        ready = folder / "url"
        ready.unlink(missing_ok=True)
        port = self.urls.get(name, ":0").rpartition(":")[2]
        with (folder / "log").open("ab") as log:
            self.routers[name] = await asyncio.create_subprocess_exec(
                *router_command(folder), "--port", port, stderr=log
            )
        await until(ready.exists)
        self.urls[name] = ready.read_text()

    async def start_worker(self, name: str) -> None:
        """Starts a worker, which has to load its replica."""
        self.fabric.worker(name, "--orphan-timeout", "300")

    async def until_ready(self, replicas: int = len(WORKERS)) -> None:
        """Waits until each router has so many replicas."""
        async with asyncio.timeout(90):
            for url in self.urls.values():
                while await self._ready(url) < replicas:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.02)

    async def _ready(self, url: str) -> int:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            async with self.http.get(f"{url}/v1/models/{MODEL}", headers=headers) as response:
                return int((await response.json())["ready_replicas"])
        except aiohttp.ClientError:
            return 0

    def pid_of(self, worker: str, part: str) -> int:
        """Returns the process of a worker's ``agent``, ``hub`` or ``host``."""
        agent = self.fabric.workers[worker].pid
        if part == "agent":
            return agent
        module = {"hub": _HUB, "host": _HOST}[part]
        (found,) = (
            p.pid
            for p in psutil.Process(agent).children(recursive=True)
            if module in p.cmdline() and (part == "hub" or _listens(p))
        )
        return found

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
async def echo_fabric(root: Path, workers: int = 2) -> AsyncIterator[EchoFabric]:
    """Yields a fabric with a replica on each worker, ready at both routers, for two tenants."""
    leader = Elsewhere(root, "tests.flowmesh_serving.planning_control")
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        made = EchoFabric(root, leader, http, Fabric(root, leader, http))  # type: ignore[arg-type]
        try:
            names = WORKERS[:workers]
            placed = {replica_id(worker): worker for worker in names}
            tokens = (*services()[0].tokens, ServiceToken(token_hash("b"), "team-b"))
            for name in ROUTERS:
                (root / name).mkdir()
                listed = services(placed=placed, in_flight_max=256, tokens=tokens)
                write_services(root / name / "services.json", listed)
                await made.start_router(name)
            await leader.start(http)
            for name in names:
                await made.start_worker(name)
            await made.until_ready(workers)
            yield made
        finally:
            await made.close()


@dataclass
class EchoLoad:
    """Requests at a rate, each with a text of its own, to both routers in turn.

    Attributes:
        open: requests that have not ended.
        ok: whole and right answers.
        failed: why each other request failed.
        wrong: questions whose answer was not theirs.
        refused: requests that were turned away before they began, with 429 or no connection.
    """

    fabric: EchoFabric
    rate: float = 50.0
    text: str = "rest"
    rng: random.Random = field(default_factory=random.Random)
    open: dict[int, str] = field(default_factory=dict)
    ok: int = 0
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    latencies_s: list[float] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["EchoLoad"]:
        """Sends requests during the block, and waits for the last ones."""
        sending = asyncio.create_task(self._send())
        try:
            yield self
        finally:
            sending.cancel()
            await asyncio.gather(*self._tasks)

    @property
    def ended(self) -> int:
        """Requests that have ended in any way."""
        return self.ok + len(self.failed) + len(self.wrong) + self.refused

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for number in itertools.count():
            # Where this process stood still, what is late is not sent all at once.
            due_s = max(due_s, loop.time() - _LATE_S) + self.rng.expovariate(self.rate)
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            task = asyncio.create_task(self._ask(number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, number: int) -> None:
        began_s = asyncio.get_running_loop().time()
        words = f"q{number} {self.text} a{number}"
        names = [ROUTERS[number % 2], ROUTERS[1 - number % 2]]
        for name in names:
            self.open[number] = name
            try:
                await self._ask_one(self.fabric.urls[name], words, stream=number % 4 == 0)
            except aiohttp.ClientConnectorError:
                continue  # it does not listen: as a Service does, take the other
            except (aiohttp.ClientError, OSError, ValueError) as error:
                self.failed.append(f"{number} at {name}: {error!r}")
            finally:
                del self.open[number]
                self.latencies_s.append(asyncio.get_running_loop().time() - began_s)
            return
        self.refused += 1

    async def _ask_one(self, url: str, words: str, *, stream: bool) -> None:
        body = {"model": MODEL, "messages": says(words), "stream": stream}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with self.fabric.http.post(
            f"{url}/v1/chat/completions", json=body, headers=headers
        ) as response:
            data = await response.read()
        if response.status == 429:
            self.refused += 1
            return
        if response.status != 200:
            raise ValueError(f"{response.status} {data[:200]!r}")
        answer = _streamed(data) if stream else _whole(data)
        if answer == words:
            self.ok += 1
        else:
            self.wrong.append(f"{words!r} was answered {answer!r}")


def _whole(data: bytes) -> str:
    return str(msgspec.json.decode(data)["choices"][0]["message"]["content"])


def _streamed(data: bytes) -> str:
    words = []
    for line in data.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            event = msgspec.json.decode(line[6:])
            if "error" in event:
                raise ValueError(f"broken off: {event['error']}")
            words.append(event["choices"][0]["delta"].get("content"))
    return " ".join(w for w in words if w)
