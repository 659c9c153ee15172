"""Measures the memory of hosts; the worker agent kills one that exceeds its reservation.

A limit on the address space would break libraries that map more than they use. So the resident
memory without mapped files is read about once a second.
"""

import asyncio
from collections.abc import Callable, Iterable

import psutil

from flowmesh_core.worker_agent.events import Event, MemoryMeasured
from flowmesh_worker.engines.code.process_tree import tree_mib
from flowmesh_worker.instances.engine_hosts import EngineHost

WATCH_EVERY_S = 1.0


async def watch_memory(
    hosts: Callable[[], Iterable[EngineHost]],
    post: Callable[[Event], None],
) -> None:
    """Watches until cancelled.

    Args:
        hosts: returns the hosts to watch.
        post: gets ``MemoryMeasured`` for each host.
    """
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        watched = [(host.instance_id, host.process.pid) for host in hosts() if host.process.pid]
        pids = [pid for _, pid in watched]
        used = await asyncio.to_thread(lambda p: [used_mib(pid) for pid in p], pids)
        for (instance_id, _), mib in zip(watched, used, strict=True):
            post(MemoryMeasured(instance_id, mib))


def used_mib(pid: int) -> int:
    """Returns the anonymous and shared memory of a process and all its children, in MiB.

    A page that several of them share (a forked engine core shares its host's) counts once.
    """
    try:
        process = psutil.Process(pid)
        pids = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return 0
    return int(tree_mib(pids))
