"""A thread with an event loop of its own is stopped, also where it ends at that moment."""

import asyncio
import threading

import pytest

from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.loop_thread import LoopThread


async def test_work_that_fails_while_it_is_stopped_gives_its_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = asyncio.get_running_loop()
    closed, go_on = threading.Event(), threading.Event()
    is_closed = main.is_closed

    def held() -> bool:
        """Holds the thread between the end of its loop and the report of that."""
        if threading.current_thread().name == "work":
            closed.set()
            go_on.wait(10)
        return is_closed()

    async def work(stop: asyncio.Event) -> None:
        raise LeadershipLostError("another one leads")

    thread = LoopThread("work", work)
    monkeypatch.setattr(main, "is_closed", held)
    running = asyncio.create_task(thread.run())
    await asyncio.to_thread(closed.wait, 10)
    stopping = asyncio.create_task(thread.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    with pytest.raises(LeadershipLostError):
        await running
