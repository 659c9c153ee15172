"""Calls of users' code without a worker, and what its processes use meanwhile."""

import asyncio
import contextlib
import textwrap
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.flowmesh_control import waiting

from flowmesh_worker.engines.code.limits import SandboxResult
from flowmesh_worker.engines.code.locked_calls import LockedCalls
from flowmesh_worker.engines.code.process_tree import tree_mib


async def call(folder: Path, code: str, *, memory_mib: int, timeout_s: float = 60) -> SandboxResult:
    """Calls ``main()`` of some code."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    return await LockedCalls(folder, "the test").call(
        textwrap.dedent(code), "main", inputs={}, args={}, timeout_s=timeout_s,
        memory_mib=memory_mib,
    )  # fmt: skip


_SAMPLE_EVERY_S = 0.02


@dataclass
class Usage:
    """The most that the processes of users' code used at once, and for how long they used much."""

    mib: float = 0.0
    processes: int = 0
    seconds: float = 0.0


def runners() -> list[int]:
    """Processes of users' code below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "engines.code.runner" in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@asynccontextmanager
async def observed(over_mib: float) -> AsyncIterator[Usage]:
    """Samples until the block ends and no process is left.

    Args:
        over_mib: seconds above this count.
    """
    usage, done = Usage(), threading.Event()

    def sample() -> None:
        since = None
        while not done.wait(_SAMPLE_EVERY_S):
            pids = runners()
            mib = tree_mib(pids)
            usage.mib, usage.processes = max(usage.mib, mib), max(usage.processes, len(pids))
            now = time.monotonic()
            since = (since or now) if mib > over_mib else None
            usage.seconds = max(usage.seconds, now - since if since else 0.0)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield usage
        await waiting.until(lambda: not runners(), within_s=10)
    finally:
        done.set()
        thread.join()
