"""Real engines in hosts that were prepared give what they give in hosts that were not."""

from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import blobs_of
from tests.flowmesh_worker.prewarming import FIRST, SECOND, host_of

from flowmesh_core.identity import tree_identity
from flowmesh_core.protocol.messages import InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.worker_agent.events import Connected
from flowmesh_store.tree import store_tree
from flowmesh_worker.engines.preload import TRANSFORMERS, VLLM_ON_CPU

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flowmesh_worker.conftest import World

    from flowmesh_worker.engines.preload import HostPreload
    from flowmesh_worker.instances.standby_hosts import StandbyProcess

pytestmark = [pytest.mark.nightly, pytest.mark.model]

PARAMS = {"prompt": "{{ p }}", "maxTokens": 12, "seed": 7, "temperature": 0.9}
WITHIN_S = 300.0


@pytest.mark.parametrize(
    ("implementation", "preparation"), [("vllm", VLLM_ON_CPU), ("transformers", TRANSFORMERS)]
)
async def test_an_engine_draws_the_same_in_a_prepared_host(
    world: "World", tiny_model: "Path", implementation: str, preparation: "HostPreload"
) -> None:
    tree = await store_tree(blobs_of(world.store), tiny_model)
    model = InputRef(
        Artifact("model", tree_identity("model", tree.files), tree.digest, tree.size_bytes)
    )
    rows = await world.dataset([{"p": f"the fox {n}"} for n in range(4)])
    shared = {"implementation": implementation, "dtype": "float32", "batchInvariant": True}
    agent = await world.worker(memory_mib=16_384)

    def hosts() -> "dict[HostPreload, StandbyProcess]":
        return agent.standby.by_preload()

    async def drawn(signature: Any) -> list[dict[str, Any]]:
        work = world.assignment(
            "llm.generate",
            signature=signature,
            signature_params=shared,
            params=PARAMS,
            inputs={"model": model, "rows": rows},
            components=("model",),
            memory_mib=2000,
        )
        return await world.rows(await world.gateway.do(work, WITHIN_S))

    first = await drawn(FIRST)
    await world.gateway.desire(prewarm=())
    await world.gateway.until(lambda: agent.machine.standby._allowed)
    agent.machine.standby.request(world.assignment("llm.generate", signature_params=shared))
    agent._shell.post(Connected())
    await world.gateway.until(
        lambda: preparation in hosts() and hosts()[preparation].ready, WITHIN_S
    )
    ready = hosts()[preparation].process.pid
    assert await drawn(SECOND) == first
    assert host_of(agent, SECOND).process.pid == ready != host_of(agent, FIRST).process.pid
