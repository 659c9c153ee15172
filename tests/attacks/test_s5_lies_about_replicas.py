"""Attacker: W, the hub of a worker that the control plane gave a replica of one service, or none.
Action: reports replicas of other services, of other workers, and of releases that are not placed.
Must not happen: it sees a request of another service, or takes a replica away from its worker.
"""

import asyncio
from pathlib import Path

import msgspec
import openai
import pytest
from tests.flowmesh_serving.hand_hub import hand_hub, load
from tests.flowmesh_serving.stack import (
    SERVICE,
    ask,
    replica_of,
    services,
    serving_stack,
    start_host,
    until,
)

from flowmesh_core.protocol.serving import CallEnded, ReplicaLoads
from flowmesh_serving.service_file import write_services

GIVEN = f"{SERVICE}/llm/r1/1"


async def test_a_hub_is_believed_about_replicas_that_are_placed_on_its_worker_only(
    tmp_path: Path,
) -> None:
    listed = services(placed={GIVEN: "worker-1", f"{SERVICE}/llm/r1/2": "worker-2"})
    lies = (
        load(GIVEN),  # another worker's
        load(f"{SERVICE}/llm/r0/1"),  # of a release before
        load("x", "team-b/other"),  # of a service that there is not
    )
    async with (
        serving_stack(tmp_path, listed, replica_wait_s=0.1) as stack,
        hand_hub(tmp_path, *lies, worker="worker-9") as liar,
        stack.client as client,
    ):
        with pytest.raises(openai.InternalServerError, match="No replica"):
            await ask(client, "secret")
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host))  # the hub of worker-1
        await stack.until_ready()
        liar.say(ReplicaLoads(lies))
        for _ in range(5):
            assert (await ask(client, "secret")).choices[0].message.content == "secret"
        liar.writer.close()
        await until(lambda: len(stack.router._calls.replicas._reported) == 1)
        assert stack.router._calls.replicas.count(SERVICE) == 1
        assert (await ask(client, "one")).choices[0].message.content == "one"
        await host.close()


async def test_a_replica_takes_calls_once_it_is_placed_and_none_when_it_is_placed_elsewhere(
    tmp_path: Path,
) -> None:
    async with (
        serving_stack(tmp_path, services(placed={})) as stack,
        hand_hub(tmp_path, load(GIVEN), worker="worker-9") as hub,
        stack.client as client,
    ):
        calls = stack.router._calls
        await until(lambda: bool(calls.replicas._reported))
        assert calls.replicas.count(SERVICE) == 0
        write_services(tmp_path / "services.json", services(placed={GIVEN: "worker-9"}))
        await until(lambda: calls.replicas.count(SERVICE) == 1)
        write_services(tmp_path / "services.json", services(placed={GIVEN: "worker-1"}))
        await until(lambda: calls.replicas.count(SERVICE) == 0)
        del hub, client


async def test_without_a_placement_the_first_hub_of_a_replica_keeps_it(tmp_path: Path) -> None:
    async with (
        serving_stack(tmp_path) as stack,
        hand_hub(tmp_path, load(GIVEN), worker="first") as first,
        stack.client as client,
    ):
        await stack.until_ready()
        async with hand_hub(tmp_path, load(GIVEN), worker="second"):
            await until(lambda: len(stack.router._calls.replicas._reported) == 2)
            for _ in range(3):
                waiting = asyncio.create_task(ask(client, "one"))
                call = await first.call()
                body = msgspec.json.encode({"id": call.call_id, "object": "x", "choices": []})
                first.say(CallEnded(call.call_id, "ok", body=body))
                await waiting
        assert stack.router._calls.replicas.count(SERVICE) == 1
