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
from flowmesh_worker.instances.instance import EngineInstance

WATCH_EVERY_S = 1.0
_SHARES = frozenset({"Pss_Anon:", "Pss_Shmem:"})
ALLOWED = 1.25
"""A host may exceed its reservation by a quarter before it is ended."""


async def watch_memory(
    lanes: Callable[[], Iterable[EngineInstance]], every_s: float = WATCH_EVERY_S
) -> None:
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
    """Anonymous and shared memory of a process and of all that it started, in MiB.

    A page that several of them share (a forked engine core has its host's) counts once in all.
    """
    try:
        process = psutil.Process(pid)
        pids = [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return 0
    return sum(_own_kib(p) for p in pids) // 1024


def _own_kib(pid: int) -> int:
    """A process's proportional share of anonymous and shared pages; 0 once it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    sizes = (line.split() for line in text.splitlines())
    return sum(int(s[1]) for s in sizes if s[0] in _SHARES)


def _judge(lane: EngineInstance, mib: int) -> None:
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
