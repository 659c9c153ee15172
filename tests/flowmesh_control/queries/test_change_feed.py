"""The feed of changed runs wakes its watchers."""

import asyncio
import contextlib

from flowmesh_control.queries.change_feed import RunChangeFeed


async def test_a_watcher_wakes_at_once_and_then_when_its_run_changes() -> None:
    changes, woken = RunChangeFeed(), list[int]()

    async def watch() -> None:
        async with contextlib.aclosing(changes.of("u1")) as watching:
            async for _ in watching:
                woken.append(1)
                if len(woken) == 2:
                    return

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    assert len(woken) == 1
    changes.changed("u2")
    changes.changed("u1")
    await asyncio.wait_for(task, 60)
    assert not changes._watchers
