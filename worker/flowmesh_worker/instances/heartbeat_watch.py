"""Ends hosts whose heartbeat has stopped: a stopped process would hold its run, and bill, for ever.

A host beats every few seconds from its start, also while it loads. Where the agent itself did not
run for a while, or the whole machine was suspended, the silence is not the host's and counts anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_worker.instances.instance import SILENCE_SHOWN_FROM_S, EngineInstance
from flowmesh_worker.ipc.heartbeat import BEAT_S

SILENT_MAX_S = 120.0
"""A host that has not beaten for so long is ended."""
AGENT_LATE_S = 5.0
"""Where the agent looks so much later than it meant to, it could hear no host itself."""


async def watch_heartbeats(
    lanes: Callable[[], Iterable[EngineInstance]], on_change: Callable[[], None]
) -> None:
    """Watches until cancelled.

    Args:
        lanes: the lanes there are.
        on_change: called when the silence that a lane reports has changed.
    """
    looked_s = time.monotonic()
    reported = False
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = time.monotonic()
        late_s, looked_s = now_s - looked_s - BEAT_S, now_s
        silent = False
        for lane in lanes():
            if late_s > AGENT_LATE_S:
                lane.process.forgive_silence()
            silent_s = lane.process.silent_s
            if silent_s > SILENT_MAX_S:
                lane.end(_stood_still(lane, silent_s))
            silent = silent or silent_s > SILENCE_SHOWN_FROM_S
        if silent or reported:
            on_change()
        reported = silent


def _stood_still(lane: EngineInstance, silent_s: float) -> FailureReport:
    return FailureReport(
        FailureKind.HOST_CRASHED.value,
        f"the host of {lane.engine} stood still: no heartbeat for {silent_s:.0f} s",
        detail=lane.last_lines(),
    )
