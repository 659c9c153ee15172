"""Values of stages are freed with their request, whatever ends it: no byte is left in any store."""

import random

import pytest
from tests.flowmesh_serving.request_world import RequestWorld
from tests.virtual_time import in_virtual_time

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")


async def check_bytes_at_the_end(seed: int, requests: int) -> None:
    """Runs requests with cancels and crashes; checks that nothing is left of them."""
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    world = RequestWorld(seed)
    await world.run(requests)
    assert {"ok", "left", "failed"} <= world.outcomes.keys()
    for worker in world.workers.values():
        stages = worker.hub._stages
        assert (len(stages), stages._value_bytes, len(stages._joins)) == (0, 0, 0)
        assert worker.host.runner.stored_bytes == 0, worker.name


@pytest.mark.parametrize("seed", [1, 2, FRESH])
@in_virtual_time
async def test_no_value_is_left_after_cancels_and_crashes(seed: int) -> None:
    await check_bytes_at_the_end(seed, 400)


@pytest.mark.nightly
@in_virtual_time
async def test_no_value_is_left_of_fifty_thousand_requests() -> None:
    await check_bytes_at_the_end(random.randrange(1 << 30), 50_000)
