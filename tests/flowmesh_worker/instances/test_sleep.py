"""Two engines that do not fit a worker together take turns: each sleeps while the other works."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import blobs_of

from flowmesh_core.identity import digest_bytes, tree_identity
from flowmesh_core.protocol.messages import Assignment, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.tree import store_tree

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

pytestmark = [pytest.mark.slow, pytest.mark.model]

ENGINE_MIB = 2200
WORKER_MIB = 4000
"""Enough for one of these engines beside one that is asleep, and too little for two."""
SLEEP_MIB = 3000
"""Enough for both asleep, as they are for a moment when one of them is about to wake."""
PROMPTS = [{"p": f"the fox {'jumps over ' * (n % 7)}the dog {n}"} for n in range(12)]


async def stored(world: "World", model: Path) -> InputRef:
    tree = await store_tree(blobs_of(world.store), model)
    digest = tree_identity("model", tree.files)
    return InputRef(Artifact("model", digest, tree.digest, tree.size_bytes))


async def answers(world: "World", model: InputRef, name: str) -> tuple[list[Any], float, float]:
    """Returns what the engine of a name answers, the wait for it, and the whole time."""
    rows = await world.dataset(PROMPTS, inline=True)
    given: Assignment = world.assignment(
        "llm.generate",
        signature=digest_bytes(name.encode()),
        memory_mib=ENGINE_MIB,
        params={"prompt": "{{ p }}", "maxTokens": 16, "seed": 3, "temperature": 0.9},
        signature_params={"implementation": "vllm", "dtype": "float32", "batchInvariant": True},
        inputs={"model": model, "rows": rows},
        components=("model",),
        row_output="rows",
    )
    began = time.monotonic()
    end = await world.gateway.do(given, 120)
    took_s = time.monotonic() - began
    assert end.usage is not None
    return [r["completion"] for r in await world.rows(end)], end.usage.load_s, took_s


@pytest.mark.parametrize("sleep_mib", [SLEEP_MIB, 0], ids=["asleep", "closed"])
async def test_two_engines_that_do_not_fit_together_take_turns(
    world: "World", tiny_model: Path, sleep_mib: int
) -> None:
    agent = await world.worker(memory_mib=WORKER_MIB, sleep_mib=sleep_mib)
    model = await stored(world, tiny_model)
    first, _, _ = await answers(world, model, "one")
    other, _, _ = await answers(world, model, "two")
    hosts = {host.signature: host.process.pid for host in agent.hosts}
    switches = []
    for name, expected in (("one", first), ("two", other), ("one", first)):
        found, load_s, took_s = await answers(world, model, name)
        assert found == expected
        switches.append(load_s)
        print(f"{name}: engine after {load_s:.2f} s, answers after {took_s:.2f} s")  # noqa: T201
    asleep = {host.signature: host.process.pid for host in agent.hosts} == hosts
    assert asleep is (sleep_mib > 0)
    if asleep:
        assert max(switches) < 2.0
        reported = [i for i in world.gateway.lanes if i.asleep]
        assert [(i.state, i.memory_mib < ENGINE_MIB) for i in reported] == [("closing", True)]
