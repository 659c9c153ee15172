"""Reports how long hosts have sent no heartbeat; a stopped process would hold its run for ever.

A host beats every few seconds from its start, also while it loads. Where the agent itself did not
run for a while, or the whole machine was suspended, the silence is not the host's and counts anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from flowmesh_core.worker_agent.events import Event, HostSilent
from flowmesh_core.worker_agent.state import SILENCE_REPORTED_FROM_S
from flowmesh_worker.instances.engine_hosts import EngineHost
from flowmesh_worker.ipc.heartbeat import BEAT_S

AGENT_LATE_S = 5.0
"""Where the agent looks so much later than it meant to, it could hear no host itself."""


async def watch_heartbeats(
    hosts: Callable[[], Iterable[EngineHost]], post: Callable[[Event], None]
) -> None:
    """Watches until cancelled.

    Args:
        hosts: the hosts there are.
        post: takes ``HostSilent`` of each host that is silent, and once when it beats again.
    """
    looked_s = time.monotonic()
    silent: set[int] = set()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = time.monotonic()
        late_s, looked_s = now_s - looked_s - BEAT_S, now_s
        was_silent, silent = silent, set()
        for host in hosts():
            if late_s > AGENT_LATE_S:
                host.process.forgive_silence()
            silent_s = host.process.silent_s
            if silent_s > SILENCE_REPORTED_FROM_S:
                silent.add(host.instance_id)
            if host.instance_id in silent | was_silent:
                post(HostSilent(host.instance_id, silent_s))
