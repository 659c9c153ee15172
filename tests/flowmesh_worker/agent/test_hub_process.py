"""A worker with its real hub answers a router, also after its hub was killed."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import openai
import pytest
from tests.flowmesh_serving.stack import SALTS, SERVICE, ask, router_of, until, until_open

from flowmesh_core.protocol.messages import RouterAddress, ServingReplica
from flowmesh_core.worker_agent import events as e
from flowmesh_worker.serving.hub_process import HubProcess

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

pytestmark = pytest.mark.slow


async def test_a_replica_of_a_worker_answers_and_does_again_after_kill_9_of_its_hub(
    world: "World", tmp_path: Path
) -> None:
    hubs: list[HubProcess] = []

    def make(post: Callable[[e.Event], None]) -> HubProcess:
        hubs.append(HubProcess("worker-1", post))
        return hubs[0]

    def units() -> int:
        reports = [s.replicas for s in world.gateway.syncs if s.replicas]
        return max((r.units for replicas in reports for r in replicas), default=0)

    async with router_of(tmp_path) as stack, stack.client as client:
        await world.worker(hub=make)
        opening = world.prewarm("test.echo")
        replica = ServingReplica(f"{SERVICE}/llm/r1/0", SERVICE, "llm", "r1", opening, 0, SALTS)
        routers = (RouterAddress(f"unix:{tmp_path / 'hubs'}"),)
        await world.gateway.desire(replicas=(replica,), routers=routers)
        await stack.until_ready()
        answer = await ask(client, "one two")
        assert (answer.choices[0].message.content, answer.seen["salt"]) == ("one two", "salt-a")
        end = await world.gateway.do(world.assignment("test.echo", params={"value": 7}))
        assert end.failure is None  # an attempt runs in the same host
        await world.gateway.until(lambda: units() == 4)
        killed = hubs[0].pid
        waiting = asyncio.create_task(ask(client, "wait"))
        await until(lambda: stack.router._calls.in_flight == 1)
        os.kill(killed, signal.SIGKILL)
        await until_open(client, 1)  # the lost call has left the engine, and is sent again
        assert hubs[0].pid not in (0, killed)
        assert not waiting.done()
        before = units()
        waiting.cancel()
        await ask(client, "three")
        await world.gateway.until(lambda: units() > before)  # the count goes on
        await world.gateway.desire(replicas=())
        await until(lambda: hubs[0].pid == 0)
        with pytest.raises(openai.InternalServerError, match="No replica"):
            await ask(client, "four")
