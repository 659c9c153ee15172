"""The process of a resident sandbox: starts it within its limits, and ends all that it started.

Used by a component host, and by the container of users' code where a pod has one.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import msgspec

from flowmesh_worker.engines.code.call_limits import CallLimits, machine_groups
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest
from flowmesh_worker.engines.code.processes import ENDING_S, sandbox_environment, sandbox_uid


class ResidentProcess:
    """A process that was started; :meth:`end` must be called."""

    def __init__(self, process: asyncio.subprocess.Process, limits: CallLimits, jail: Path) -> None:
        """See :func:`start_process`."""
        self._process = process
        self._limits = limits
        self._jail = jail

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def lacks(self) -> str:
        """Which protection around the process this machine does not support; empty for none."""
        return self._limits.lacks

    async def wait(self) -> None:
        """Waits until the process has ended."""
        await self._process.wait()

    async def end(self) -> ProcessEnd:
        """Ends the process and all that it started, and removes its directory."""
        await self._limits.end()
        with contextlib.suppress(TimeoutError):  # the supervisor reaps what was below it, and ends
            await asyncio.wait_for(self._process.wait(), ENDING_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        code = await self._process.wait()
        shutil.rmtree(self._jail, ignore_errors=True)
        lacks = (self._limits.lacks,) if self._limits.lacks else ()
        return ProcessEnd(code, self._limits.exceeded, lacks)


async def start_process(
    task: SandboxRequest, jail: Path, channel: socket.socket, *, output: int | None = None
) -> ResidentProcess:
    """Starts a resident sandbox, which waits for its code.

    Args:
        task: its limits and tenant; its ``jail`` is set here, and its ``wanted_uid`` where it has
            none.
        jail: the code's own directory, which is created here.
        channel: the sandbox's end of its connection to the component host; the caller closes it.
        output: the descriptor that the code prints to; None for this process's own.
    """
    task = _with_jail(task, jail)
    groups = await asyncio.to_thread(machine_groups)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-s",
        "-m",
        "flowmesh_worker.engines.code.resident",
        str(channel.fileno()),
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=(channel.fileno(),),
        env=sandbox_environment(),
        start_new_session=True,
    )
    limits = CallLimits(task)
    limits.begin(process.pid, groups)
    assert process.stdin is not None
    process.stdin.write(msgspec.msgpack.encode(task))
    process.stdin.close()
    return ResidentProcess(process, limits, jail)


def _with_jail(task: SandboxRequest, jail: Path) -> SandboxRequest:
    uid = task.wanted_uid or sandbox_uid()
    jail.mkdir(mode=0o700)
    if os.geteuid() == 0 and not task.own_user:
        os.chown(jail, uid, uid)
    return msgspec.structs.replace(task, jail=str(jail), wanted_uid=uid)
