"""The queue of objects to reconcile."""

import asyncio

from flowmesh_operator.kube.work_queue import WorkQueue


async def test_a_name_is_processed_once_for_all_pending_additions_and_again_for_later_ones() -> (
    None
):
    queue, looked = WorkQueue(), list[str]()
    begun, go_on, twice = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def look(name: str) -> None:
        looked.append(name)
        begun.set()
        await go_on.wait()
        if len(looked) > 1:
            twice.set()

    for _ in range(3):
        queue.add("a")
    servers = [asyncio.create_task(queue.serve(look)) for _ in range(2)]
    await begun.wait()
    queue.add("a")  # while it is being looked at: not by the other server
    await asyncio.sleep(0)
    assert looked == ["a"]
    go_on.set()
    async with asyncio.timeout(180):
        await twice.wait()
    assert looked == ["a", "a"]
    for server in servers:
        server.cancel()
    await asyncio.gather(*servers, return_exceptions=True)


async def test_a_delayed_name_is_processed_earlier_if_it_is_added_again_with_a_shorter_delay() -> (
    None
):
    queue, looked = WorkQueue(), asyncio.Event()

    async def look(_: str) -> None:
        looked.set()

    queue.add_after("a", 3600)
    queue.add_after("a", 0.01)
    queue.add_after("a", 7200)
    server = asyncio.create_task(queue.serve(look))
    async with asyncio.timeout(180):
        await looked.wait()
    server.cancel()
    await asyncio.gather(server, return_exceptions=True)
