"""Reports how long hosts have sent no heartbeat: a run would wait for a stopped process for ever.

A host sends one every few seconds from its start, also while it loads. If the worker's process
itself did not run for a while, or the machine was suspended, the silence is counted anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from flowmesh_core.worker_agent.events import Event, HostSilent
from flowmesh_core.worker_agent.state import SILENCE_REPORTED_FROM_S
from flowmesh_worker.instances.engine_hosts import EngineHost
from flowmesh_worker.ipc.heartbeat import BEAT_S

AGENT_LATE_S = 5.0
"""Above this delay of a check, the worker's process itself may have missed heartbeats."""


async def watch_heartbeats(
    hosts: Callable[[], Iterable[EngineHost]], post: Callable[[Event], None]
) -> None:
    """Watches until cancelled.

    Args:
        hosts: returns the hosts to watch.
        post: gets ``HostSilent`` for each silent host, and once when its heartbeat is back.
    """
    checked_s = time.monotonic()
    silent: set[int] = set()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = time.monotonic()
        late_s, checked_s = now_s - checked_s - BEAT_S, now_s
        was_silent, silent = silent, set()
        for host in hosts():
            if late_s > AGENT_LATE_S:
                host.process.forgive_silence()
            silent_s = host.process.silent_s
            if silent_s > SILENCE_REPORTED_FROM_S:
                silent.add(host.instance_id)
            if host.instance_id in silent | was_silent:
                post(HostSilent(host.instance_id, silent_s))
