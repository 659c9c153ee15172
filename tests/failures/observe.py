"""Observes a fabric from outside: states, ledgers, and the processes of a worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
from tests.flowmesh_control.fabric import Fabric

from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.accounting.ledger_lines import Line, decode_lines

if TYPE_CHECKING:
    import subprocess

WITHIN_S = 400.0
HOST = "flowmesh_worker.host"


async def until(holds: Callable[[], Awaitable[Any]], within_s: float = WITHIN_S) -> Any:
    """Waits until the condition returns something true; returns it."""
    async with asyncio.timeout(within_s):
        while not (found := await holds()):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    return found


async def status_of(fabric: Fabric, uid: str) -> RunStatus:
    return msgspec.convert(await fabric.call("GET", f"/v1/runs/{uid}"), RunStatus)


async def step_of(fabric: Fabric, uid: str) -> StepStatus:
    """Returns the status of a run's only step."""
    (step,) = (await status_of(fabric, uid)).steps
    return step


async def done_units(fabric: Fabric, uid: str, at_least: float) -> StepStatus:
    """Waits until a run's only step has done this many units; returns its status."""

    async def reached() -> StepStatus | None:
        step = await step_of(fabric, uid)
        return step if step.done_units >= at_least and step.workers else None

    found: StepStatus = await until(reached)
    return found


def ledger(fabric: Fabric, uid: str) -> list[Line]:
    """Returns a run's ledger lines that are on the disk."""
    found = sorted((fabric.root / "store" / "runs" / uid / "ledger").glob("*"))
    segments = [p.read_bytes() for p in found if not p.name.endswith("-00000000")]
    return [line for data in segments for line in decode_lines(_records(data))]


def _records(data: bytes) -> bytes:
    return b"\n".join(line for line in data.splitlines() if line.startswith(b'{"type"'))


def hosts_of(worker: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Returns the processes of a worker's engine hosts."""
    found = []
    for child in psutil.Process(worker.pid).children(recursive=True):
        try:
            if HOST in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return found
