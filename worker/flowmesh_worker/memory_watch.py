"""Watches what every host really uses, and ends one that outgrows what it reserved.

A limit on the address space would break libraries that map more than they use, so the resident
memory that is the host's own (not mapped files) is read about once a second.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_worker.lane import Lane

WATCH_EVERY_S = 1.0
ALLOWED = 1.25
"""A host may exceed its reservation by a quarter before it is ended."""


async def watch_memory(lanes: Callable[[], Iterable[Lane]], every_s: float = WATCH_EVERY_S) -> None:
    """Watches until cancelled.

    Args:
        lanes: the lanes there are; those with devices are measured but not limited.
        every_s: how often to look.
    """
    while True:
        await asyncio.sleep(every_s)
        watched = [lane for lane in lanes() if lane.process.pid and not lane.gone]
        used = await asyncio.to_thread(lambda w: [used_mib(x.process.pid) for x in w], watched)
        for lane, mib in zip(watched, used, strict=True):
            _judge(lane, mib)


def used_mib(pid: int) -> int:
    """Anonymous and shared memory of a process and of all that it started, in MiB."""
    try:
        process = psutil.Process(pid)
        pids = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return 0
    own = [_own_kib(p) for p in pids]
    # Shared memory is counted once: the processes of one host share it among themselves.
    return (sum(anonymous for anonymous, _ in own) + max(shared for _, shared in own)) // 1024


def _own_kib(pid: int) -> tuple[int, int]:
    found = {"RssAnon": 0, "RssShmem": 0}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return found["RssAnon"], found["RssShmem"]


def _judge(lane: Lane, mib: int) -> None:
    for job in lane.running.values():
        job.peak_memory_mib = max(job.peak_memory_mib, mib)
    reserved = lane.reservation.memory_mib
    if lane.reservation.devices or not reserved or mib <= reserved * ALLOWED:
        return
    lane.end(
        FailureReport(
            FailureKind.OUT_OF_MEMORY.value,
            f"the host of {lane.engine} used {mib} MiB where {reserved} MiB were reserved",
            "ask for more with resources.memory, or give it less at once",
        )
    )
