"""The link between a router and a hub drops every packet for a while, and then goes on."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import openai
import pytest
from httpx import AsyncClient
from tests.flowmesh_serving.kept_connections import KeptConnections
from tests.flowmesh_serving.network_namespaces import (
    HubInNamespace,
    MachinesOfNetwork,
    Network,
    network,
)
from tests.flowmesh_serving.stack import (
    MODEL,
    SERVICE,
    TOKEN,
    Host,
    Stack,
    ask,
    replica_of,
    says,
    services,
    start_host,
    until,
)

from flowmesh_core.protocol.serving import CREDIT_BYTES
from flowmesh_serving.links.hub_link import PING_EVERY_S, SILENT_S
from flowmesh_worker.engine_api import ServingCall
from flowmesh_worker.engines.testing.echo import Echo

pytestmark = pytest.mark.slow
STALLED, OTHER = "stalled", "other"
LONG = " ".join(["rest"] * 60)
"""Takes three seconds: the link is closed before its answer."""
SETTLED_S = 0.3


class CountingEcho(Echo):
    """The echo engine; counts the bytes of words that it has made.

    Attributes:
        made: every engine, in the order of their hosts.
        word_bytes: of all calls.
    """

    made: ClassVar[list["CountingEcho"]] = []

    def __init__(self) -> None:
        super().__init__()
        self.word_bytes = 0
        self.made.append(self)

    async def _words(self, call: ServingCall) -> AsyncIterator[str]:
        async for word in super()._words(call):
            self.word_bytes += len(word)
            yield word


@pytest.fixture
def machines() -> Iterator[Network]:
    """Two machines and a router, each in a network namespace."""
    made = network(STALLED, OTHER)
    try:
        found = made.__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    yield found
    made.__exit__(None, None, None)


class Replicas:
    """A router in its namespace, and a replica on each machine that has been started."""

    def __init__(self, folder: Path, where: MachinesOfNetwork, stack: Stack) -> None:
        self.stack = stack
        self.client = openai.AsyncOpenAI(
            base_url=f"{stack.router.url}/v1", api_key=TOKEN, max_retries=0,
            http_client=AsyncClient(verify=where.trust),
        )  # fmt: skip
        self.kept = KeptConnections(where.trust)
        self._folder = folder
        self._where = where
        self._hosts: list[Host] = []
        CountingEcho.made.clear()

    @property
    def ready(self) -> int:
        return self.stack.router._calls.replicas.count(SERVICE)

    async def start(self, machine: str) -> CountingEcho:
        """Starts a hub and an engine host, and waits until the router has the replica."""
        before = self.ready
        hub: HubInNamespace = await self._where.hub(self.stack, machine)
        host = await start_host(self._folder / machine, f"{__name__}:CountingEcho")
        self._hosts.append(host)
        await hub.admit(replica_of(host, len(self._hosts)))
        await until(lambda: self.ready > before)
        return CountingEcho.made[-1]

    async def answer(self, text: str) -> tuple[int, str]:
        """Returns the status and what the answer says; on a connection that is kept."""
        body = msgspec.json.encode({"model": MODEL, "messages": says(text)})
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = self.stack.router.url
        status, data = await self.kept.post(url, "/v1/chat/completions", body, headers)
        found = msgspec.json.decode(data)
        return status, str(found["choices"][0]["message"]["content"] if "choices" in found else "")

    async def close(self) -> None:
        await self.client.close()
        for host in self._hosts:
            await host.close()


@asynccontextmanager
async def replicas(folder: Path, machines: Network, **settings: float) -> AsyncIterator[Replicas]:
    where = MachinesOfNetwork(folder, machines)
    async with where.router(folder, services(), **settings) as stack:
        made = Replicas(folder, where, stack)
        try:
            yield made
        finally:
            await made.close()


async def settled(count: Callable[[], int]) -> int:
    """Waits until a count stays the same for a while; returns it."""
    found = -1
    async with asyncio.timeout(30):
        while found != (found := count()):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(SETTLED_S)
    return found


async def test_calls_of_a_stalled_link_move_or_end_and_none_is_answered_twice(
    tmp_path: Path, machines: Network
) -> None:
    async with replicas(tmp_path, machines) as made:
        loop = asyncio.get_running_loop()
        engine = await made.start(STALLED)
        stream = await ask(made.client, "flood", stream=True)
        await anext(stream)

        async def read() -> None:
            async for _ in stream:
                pass

        reading = asyncio.create_task(read())
        whole = asyncio.create_task(made.answer(LONG))
        await until(lambda: engine.open_calls == 2)
        other = await made.start(OTHER)

        machines.stall(STALLED)
        at_s, at_bytes = loop.time(), engine.word_bytes
        during = [asyncio.create_task(made.answer(f"during {n}")) for n in range(4)]
        # The stream's credit runs out: the engine waits, with both calls still in it.
        assert await settled(lambda: engine.word_bytes) - at_bytes <= 2 * CREDIT_BYTES
        await until(lambda: made.ready == 1)
        assert loop.time() - at_s > SILENT_S - 2 * PING_EVERY_S
        with pytest.raises(openai.APIError, match="has ended"):
            await reading
        assert await asyncio.gather(*during) == [(200, f"during {n}") for n in range(4)]
        assert await whole == (200, LONG)
        assert other.word_bytes >= len(LONG.replace(" ", "")), "it has moved"
        await until(lambda: engine.open_calls == 0)  # its hub has closed the link too

        machines.resume(STALLED)
        await until(lambda: made.ready == 2)
        for n in range(20):
            assert await made.answer(f"after {n}") == (200, f"after {n}")
        await made.kept.close()
        assert made.kept.left_over == []


async def test_calls_of_a_stalled_link_are_refused_where_no_other_replica_is(
    tmp_path: Path, machines: Network
) -> None:
    async with replicas(tmp_path, machines, replica_wait_s=0.5) as made:
        engine = await made.start(STALLED)
        whole = asyncio.create_task(made.answer(LONG))
        await until(lambda: engine.open_calls == 1)
        machines.stall(STALLED)
        assert await whole == (503, "")
        assert made.ready == 0
        assert await made.answer("now") == (503, "")
        machines.resume(STALLED)
        await until(lambda: made.ready == 1)
        assert await made.answer("after") == (200, "after")
        await made.kept.close()
        assert made.kept.left_over == []
