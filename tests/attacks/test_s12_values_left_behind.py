"""Attacker: T2, a tenant that may call a service which another tenant may call too.
Action: leaves each request while its stages run, so that their results are wanted by none.
Must not happen: the component host keeps the results, until its memory is full for all tenants.
"""

import asyncio

from tests.flowmesh_serving.request_world import RequestWorld
from tests.virtual_time import in_virtual_time

REQUESTS = 200


@in_virtual_time
async def test_requests_that_are_left_leave_no_results_behind() -> None:
    world = RequestWorld(seed=1)
    await asyncio.sleep(0.1)  # the hubs report their replicas
    most = 0
    for number in range(REQUESTS):
        after_s = 0.01 + 0.06 * number / REQUESTS
        asking = asyncio.create_task(world.ask(number, leaves_after_s=after_s))
        await asyncio.sleep(after_s / 2)
        most = max(most, *(w.host.runner.stored_bytes for w in world.workers.values()))
        await asking
    assert world.outcomes["left"] > REQUESTS / 2
    assert most > 0
    await asyncio.sleep(1.0)
    assert [w.host.runner.stored_bytes for w in world.workers.values()] == [0] * 4
    before = world.outcomes["ok"]
    await world.ask(REQUESTS)
    assert world.outcomes["ok"] == before + 1
