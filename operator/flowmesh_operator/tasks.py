"""Runs coroutines together until the first of them ends, or a signal arrives."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def stop_event() -> asyncio.Event:
    """Returns an event of the running loop that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def first(*waits: Coroutine[Any, Any, Any]) -> bool:
    """Waits for the first to end, cancels the others, and raises an error of any of them.

    Returns:
        Whether the first argument has ended.
    """
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done = tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    return done
