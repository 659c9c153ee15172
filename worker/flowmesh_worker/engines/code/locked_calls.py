"""Calls of the user's code, each in a locked-in process of its own.

Used by ``code.python`` and by the tool ``python`` of ``llm.agent``.
"""

import asyncio
import contextlib
import itertools
import math
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.code.limits import Answer, Task

_SIGNALS = 65
_FIRST_UID = 1_879_048_192
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV")


class LockedCalls:
    """Runs functions of users' code below one scratch directory; calls may run side by side."""

    def __init__(self, scratch: Path, caller: str) -> None:
        """Takes where the processes' own directories go, and who calls, for the log."""
        self._scratch = scratch
        self._caller = caller
        self._said = False
        self._numbers = itertools.count(1)
        # Others must pass through to reach the code's own directory, not read what is there.
        scratch.chmod(0o711)

    async def call(
        self,
        code: str,
        function: str,
        *,
        inputs: Mapping[str, list[dict[str, object]]],
        args: Mapping[str, object],
        timeout_s: float,
        memory_mib: int,
    ) -> Answer:
        """Calls a function of a module.

        Args:
            code: the module.
            function: its function.
            inputs: rows by name, ``args`` further keyword arguments.
            args: as above.
            timeout_s: for the whole call, the start of the process included.
            memory_mib: beyond what the interpreter itself takes.

        Returns:
            Rows and metrics, or what went wrong in the code.

        Raises:
            AttemptError: kind ``timeout``, ``user-code`` where the process did not come back, or
                ``engine`` where it was killed.
        """
        number = next(self._numbers)
        uid = _FIRST_UID + (os.getpid() << 8 | number & 0xFF) % (1 << 27)
        jail = self._scratch / f"jail-{number}"
        jail.mkdir(mode=0o700)
        task = Task(
            code=code,
            function=function,
            inputs=dict(inputs),
            args=dict(args),
            jail=str(jail),
            wanted_uid=uid,
            cpu_s=math.ceil(timeout_s) + 1,
            memory_mib=memory_mib,
        )
        if os.geteuid() == 0:
            os.chown(jail, uid, uid)
        try:
            async with asyncio.timeout(timeout_s):
                data, ended = await _run_process(msgspec.msgpack.encode(task))
        except TimeoutError:
            raise AttemptError(
                Failure(
                    FailureKind.TIMEOUT,
                    f"the code ran longer than its {timeout_s:g} s",
                    "raise with.timeoutS, or look for a loop that does not end",
                )
            ) from None
        finally:
            with contextlib.suppress(OSError):
                jail.rmdir()
        answer = _read(data, ended, task)
        if answer.lacks and not self._said:
            self._said = True
            sys.stdout.write(f"{self._caller} runs here without {'; '.join(answer.lacks)}\n")
        return answer


async def _run_process(task: bytes) -> tuple[bytes, int]:
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
            pass_fds=(write_end,),
            env=_environment(),
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    try:
        sending = asyncio.ensure_future(_send(process, task))
        data = await _read_all(read_end)
        await sending
        return data, await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _send(process: asyncio.subprocess.Process, task: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(task)
        await process.stdin.drain()
    process.stdin.close()


async def _read_all(descriptor: int) -> bytes:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        return await reader.read()
    finally:
        transport.close()


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **kept,
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _read(data: bytes, code: int, task: Task) -> Answer:
    if data:
        try:
            return msgspec.msgpack.decode(data, type=Answer)
        except msgspec.DecodeError:
            raise user_code_failed(
                "the process of the code wrote something else than an answer"
            ) from None
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGKILL & 0xFF):
        # The lane says out-of-memory where the kernel's counters do.
        raise AttemptError(Failure(FailureKind.ENGINE, "the process of the code was killed"))
    raise user_code_failed(
        f"the process of the code {_ended(code)} before {task.function}() returned",
        f"it may have called os._exit(), or used more than its {task.memory_mib} MiB",
    )


def _ended(code: int) -> str:
    """How a process ended; one in a namespace of its own hands a signal on as a code below 256."""
    number = -code if code < 0 else 256 - code
    if 0 < number < _SIGNALS:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"ended with code {code}"


def user_code_failed(message: str, remedy: str = "", detail: str = "") -> AttemptError:
    """A failure of kind ``user-code``."""
    return AttemptError(Failure(FailureKind.USER_CODE, message, remedy, detail))
