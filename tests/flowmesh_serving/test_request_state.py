"""What router, hubs and hosts hold of requests is what lives, after every frame.

What may be held follows from the frames that a hub was given: a request begins with its route and
ends with the router's word, or with the hub.
"""

import random

import pytest
from tests.flowmesh_serving.request_world import RequestWorld, Worker
from tests.virtual_time import in_virtual_time

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
TICKS = 10_000


def check_router(world: RequestWorld) -> None:
    """The router has each request that a client waits for, with its join, and no other."""
    staged = world.staged
    assert staged._pending.keys() == staged._joins._requests.keys() == world.live
    replicas = world.replicas.of("team-a/ask").values()
    assert all(r.candidate.own >= 0 for r in replicas)
    if not world.live:
        assert sum(r.candidate.own for r in replicas) == 0


def check_worker(worker: Worker) -> None:
    """A hub has each request that it was sent, with its joins, and calls of these alone."""
    hub, stages, instance = worker.hub, worker.hub._stages, worker.instance
    assert stages._requests.keys() == stages._joins._requests.keys() == worker.held
    requests = stages._requests.values()
    assert stages._value_bytes == sum(r.value_bytes for r in requests)
    calls = {call_id for r in requests for call_id in r.calls.values()}
    assert hub._calls.keys() == calls
    assert instance._calls.keys() == calls
    queue = instance._queue
    assert queue.running | queue._waiting.keys() == queue._tenants.keys() == calls
    replicas = sum(len(routed.replicas) for routed in hub._calls.values())
    assert sum(r.calls for r in hub._replicas.values()) == replicas


def check(world: RequestWorld) -> None:
    check_router(world)
    for worker in world.workers.values():
        check_worker(worker)
        connection = worker.host.connections[-1]
        batches = worker.host.engine._batches
        assert batches is not None
        queued = {_request(c) for one in batches._components.values() for c in one.queue}
        assert queued <= set(map(_request, connection._tasks))


def _request(call_id: str) -> str:
    """Returns the request and route of a call, which may be one of a chain."""
    return call_id.rpartition(".")[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, FRESH])
@in_virtual_time
async def test_what_is_held_is_what_lives_at_every_tick(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    world = RequestWorld(seed, check)
    await world.run(1_000)
    assert world.ticks >= TICKS
    check(world)
    assert not world.live
    assert not any(worker.held for worker in world.workers.values())
    assert not any(worker.host.connections[-1]._tasks for worker in world.workers.values())
