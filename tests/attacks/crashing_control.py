"""A control plane in a process of its own that breaks on every run named hostile: ROOT PORT FAULT.

It breaks when such a run is settled after its first step has ended, as a condition would break it
that is evaluated then.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.flowmesh_control.fabric import control_plane

from flowmesh_control.settings import ControlSettings
from flowmesh_core.machine import steps
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State

HOSTILE = "hostile"
HANG_S = 2.0


def _endless() -> None:
    while True:
        pass


def _killed() -> None:
    """As by the kernel, for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def _error() -> None:
    raise MemoryError


FAULTS: dict[str, Callable[[], None]] = {"endless": _endless, "killed": _killed, "error": _error}


def plant(fault: Callable[[], None]) -> None:
    """Makes the machine break on hostile runs."""
    settle = steps.settle

    def breaks(state: State, run: Run, now_s: float) -> None:
        settle(state, run, now_s)
        if run.plan.name == HOSTILE and any(step.ended for step in run.steps.values()):
            fault()

    steps.settle = breaks


async def serve(root: Path, port: int) -> None:
    settings = replace(ControlSettings(), hang_s=HANG_S)
    control = control_plane(root, settings=settings, state_folder=root)
    await control.start(port=port)
    await control.wait()


if __name__ == "__main__":
    plant(FAULTS[sys.argv[3]])
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
