"""Requests of stages: the code of routers and hosts does the same about the same log, anywhere.

A world in virtual time in which everything is lost, and a real router with real sockets and hosts,
keep logs. Fresh code is given them, without sockets, engines or a clock of its own.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_serving.stage_log import (
    RecordedReplicas,
    RecordedRequests,
    RecordedWorld,
    RouterLog,
    replayed_batches,
    router_differences,
)
from tests.flowmesh_serving.stage_stack import stage_stack, together
from tests.flowmesh_serving.test_stages import ALL, REQUESTS, composed, diamond
from tests.virtual_time import VirtualTime, in_virtual_time

from flowmesh_core.stages import route
from flowmesh_serving.links.hub_link import HubLink
from flowmesh_serving.router import server
from flowmesh_serving.stages import staged_requests
from flowmesh_worker.engines.code import component_queue

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


async def recorded(seed: int, requests: int = 300) -> RecordedWorld:
    world = RecordedWorld(seed)
    await world.run(requests)
    return world


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_fresh_code_of_a_router_does_what_the_log_says(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    world = await recorded(seed)
    if seed == 1:  # a fresh world may lose no hub
        kinds = {entry.kind for log in world.logs for entry in log.entries}
        assert kinds == {"loads", "removed", "lost", "frame", "begin", "end"}
        done = {c[0] for log in world.logs for entry in log.entries for c in entry.commands}
        assert done >= {"graph", "answer", "defer", "event"}
    for log in world.logs:
        different = router_differences(log)
        assert not different, f"{different[0][0]}\n{different[0][1]}"


@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_fresh_code_of_a_host_forms_the_batches_that_the_log_says(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    world = await recorded(seed)
    kinds = {kind for log in world.batch_logs for _, kind, _ in log.events}
    assert kinds == {"call", "left", "ended"}
    assert max(len(batch[2]) for log in world.batch_logs for batch in log.batches) > 1
    for log in world.batch_logs:
        _start_clock_again()
        assert await replayed_batches(log, world._loaded) == log.batches


def _start_clock_again() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTime)
    loop.now_s = 0.0


@in_virtual_time
async def test_a_router_and_a_host_that_choose_otherwise_are_noticed() -> None:
    world = await recorded(1)

    def last(
        graph: Any,
        options: Mapping[str, Sequence[Any]],
        version: int,
        avoided: Any,
        keys: Any,
    ) -> route.RequestRoute:
        """Takes the option of the highest load."""
        turned = {
            name: [type(o)(o.replica_id, o.worker, -o.load, -o.weight) for o in some]
            for name, some in options.items()
        }
        return route.route_request(graph, turned, version, avoided, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_requests, "route_request", last)
        assert any(router_differences(log) for log in world.logs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_queue.ComponentQueue, "cap", 1)
        different = []
        for log in world.batch_logs:
            _start_clock_again()
            different.append(await replayed_batches(log, world._loaded) != log.batches)
        assert any(different)


@pytest.mark.slow
async def test_fresh_code_does_what_a_router_with_sockets_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RouterLog()

    def replicas(is_placed: Any) -> RecordedReplicas:
        made = RecordedReplicas(is_placed)
        made.log = log
        return made

    monkeypatch.setattr(server, "ReplicaTable", replicas)
    monkeypatch.setattr(server, "StagedRequests", RecordedRequests)
    for name, kind in {"answer": "answer", "defer": "defer"}.items():
        act = getattr(HubLink, name)

        def sends(link: Any, message: Any, act: Any = act, kind: str = kind) -> None:
            log.did(kind, link, message)
            act(link, message)

        monkeypatch.setattr(HubLink, name, sends)
    use_graph = HubLink.use_graph
    monkeypatch.setattr(
        HubLink,
        "use_graph",
        lambda link, graph: (log.did("graph", link, graph.digest), use_graph(link, graph)),
    )
    workers = {"w1": ["up", "twice"], "w2": ["meet", "writer"], "w3": ALL}
    async with stage_stack(tmp_path, diamond(), workers) as stack:
        asked = [stack.ask(request) for request in REQUESTS]
        for request, reply in zip(REQUESTS, await together(*asked), strict=True):
            assert reply == (200, composed(request))
        await stack.events(REQUESTS[0])
        stack.hubs["w2"].close()
        for request in REQUESTS:
            assert await stack.ask(request) == (200, composed(request))
    kinds = {entry.kind for entry in log.entries}
    assert kinds >= {"loads", "removed", "lost", "frame", "begin", "end", "credit"}
    different = router_differences(log)
    assert not different, f"{different[0][0]}\n{different[0][1]}"
