"""The bucket is unreachable while a worker serves: what is loaded or on its disk goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import openai
import pytest
from tests.flowmesh_serving.stack import MODEL, SALTS, SERVICE, ask, router_of, says, services
from tests.flowmesh_worker.agent.test_replicas import reported

from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.messages import RouterAddress, ServingReplica
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_core.worker_agent import events as e
from flowmesh_worker.serving.hub_process import HubProcess

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

pytestmark = pytest.mark.slow
NEW = "fm-token-of-new"


def replica(world: "World", service: str, model: Artifact) -> ServingReplica:
    """Returns a replica that loads a model of the store."""
    opening = world.prewarm(
        "test.echo", signature=digest_bytes(service.encode()), components={"model": model}
    )
    return ServingReplica(f"{service}/llm/r1/0", service, "llm", "r1", opening, 0, SALTS)


async def answer(client: openai.AsyncOpenAI, model: str = MODEL) -> str:
    """Asks once; returns what the answer says."""
    found = await client.chat.completions.create(model=model, messages=says("one two"))
    return str(found.choices[0].message.content)


async def test_while_the_store_is_away_loaded_replicas_answer_and_new_ones_wait(
    world: "World", tmp_path: Path
) -> None:
    def hub(post: Callable[[e.Event], None]) -> HubProcess:
        return HubProcess("worker-1", post)

    new = ServiceEntry("team-a/new", "new", (ServiceToken(token_hash(NEW), "team-a"),))
    routers = (RouterAddress(f"unix:{tmp_path / 'hubs'}"),)
    blobs, away = tmp_path / "store" / "cas", tmp_path / "store" / "cas-away"
    async with (
        router_of(tmp_path, (*services(), new), replica_wait_s=0.2) as stack,
        stack.client as client,
        stack.client_of(NEW) as client_of_new,
    ):
        await world.worker(hub=hub)
        known, unknown = await world.model("known"), await world.model("unknown")
        loaded = replica(world, SERVICE, known.artifact)
        await world.gateway.desire(replicas=(loaded,), routers=routers)
        await stack.until_ready()

        blobs.rename(away)
        blobs.symlink_to(blobs)  # nothing below it can be read: the store is unavailable
        waiting = replica(world, new.service, unknown.artifact)
        await world.gateway.desire(replicas=(loaded, waiting))
        (_, failed) = await reported(
            world.gateway, lambda found: [r.state for r in found] == ["ready", "failed"]
        )
        assert "a model could not be fetched" in failed.reason
        assert await answer(client) == "one two"
        with pytest.raises(openai.InternalServerError, match="No replica"):
            await answer(client_of_new, "new")
        stream = await ask(client, "one two three", stream=True)
        assert [c.choices[0].delta.content async for c in stream][:3] == ["one", "two", "three"]
        cached = replica(world, "team-a/cached", known.artifact)
        await world.gateway.desire(replicas=(loaded, waiting, cached))
        await reported(world.gateway, lambda found: [r.state for r in found][2:] == ["ready"])

        blobs.unlink()
        away.rename(blobs)
        await reported(world.gateway, lambda found: [r.state for r in found] == ["ready"] * 3)
        assert await answer(client_of_new, "new") == "one two"
        assert await answer(client) == "one two"
