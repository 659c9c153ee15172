"""Starts the process that runs one call of a user's code, and reads its answer."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from flowmesh_worker.engines.code.call_limits import CallLimits, machine_groups
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest

_PIECE_BYTES = 1 << 16
_FIRST_UID = 1_879_048_192
ENDING_S = 5.0
_calls = itertools.count(1)
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV")


Take = Callable[[bytes], Awaitable[None]]
"""Consumes the next bytes of an answer; an exception ends the process."""


async def run_process(
    task: SandboxRequest, scratch: Path, number: int, take: Take, *, output: int | None = None
) -> ProcessEnd:
    """Runs a task; a cancellation kills the process.

    Args:
        task: the call; its ``jail`` is set here, and its ``wanted_uid`` where it has none.
        scratch: the code's own directory is created and removed below it.
        number: distinguishes the calls of this process.
        take: gets the encoded ``SandboxResult`` in pieces; not called without an answer.
        output: the descriptor that the code prints to; None for this process's own.

    Returns:
        The exit code, and whether the call was killed for exceeding a limit.
    """
    uid = task.wanted_uid or sandbox_uid()
    jail = scratch / f"jail-{number}"
    jail.mkdir(mode=0o700)
    if os.geteuid() == 0 and not task.own_user:
        os.chown(jail, uid, uid)
    task = msgspec.structs.replace(task, jail=str(jail), wanted_uid=uid)
    try:
        return await _run(task, take, output)
    finally:
        shutil.rmtree(jail, ignore_errors=True)


async def _run(task: SandboxRequest, take: Take, output: int | None) -> ProcessEnd:
    groups = await asyncio.to_thread(machine_groups)
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-s",
            "-m",
            "flowmesh_worker.engines.code.runner",
            str(write_end),
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(write_end,),
            env=sandbox_environment(),
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    limits = CallLimits(task)
    limits.begin(process.pid, groups)
    sending = asyncio.ensure_future(_send(process, msgspec.msgpack.encode(task)))
    try:
        await _read_all(read_end, take)
        await sending
        code = await process.wait()
    finally:
        sending.cancel()
        await limits.end()
        with contextlib.suppress(TimeoutError):  # the supervisor ends once nothing is left below it
            await asyncio.wait_for(process.wait(), ENDING_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return ProcessEnd(code, limits.exceeded, (limits.lacks,) if limits.lacks else ())


async def _send(process: asyncio.subprocess.Process, task: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(task)
        await process.stdin.drain()
    process.stdin.close()


async def _read_all(descriptor: int, take: Take) -> None:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while data := await reader.read(_PIECE_BYTES):
            await take(data)
    finally:
        transport.close()


def sandbox_uid() -> int:
    """Returns a user id that no other process of users' code has."""
    return _FIRST_UID + (os.getpid() << 8 | next(_calls) & 0xFF) % (1 << 27)


def sandbox_environment() -> dict[str, str]:
    """Returns the environment of a process that runs users' code: no credentials."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
