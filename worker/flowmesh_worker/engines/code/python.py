"""``code.python``: the user's function over rows, in a process that can reach nothing else."""

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flowmesh_core.errors import AttemptError, Failure, FailureKind, IdentityError
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Metrics,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.code.limits import Answer, Task

_SIGNALS = 65
_FIRST_UID = 1_879_048_192
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV")
_LOOKS = "look at the lines above; print() shows in the step's log"


class Python:
    """Runs the user's code, one process a piece of work."""

    capacity = 1

    def __init__(self) -> None:
        """Has said nothing yet of what the machine lacks."""
        self._scratch = Path()
        self._said = False
        self._count = 0

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Takes where it may write."""
        self._scratch = settings.scratch
        # Others must pass through to reach the code's own directory, not read what is there.
        self._scratch.chmod(0o711)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Calls the function and types what it returns."""
        inputs = {n: i.rows() for n, i in work.inputs.items() if isinstance(i, DatasetInput)}
        count = sum(map(len, inputs.values()))
        answer = await self._answer(work, inputs)
        if answer.lacks and not self._said:
            self._said = True
            sys.stdout.write(f"code.python runs here without {'; '.join(answer.lacks)}\n")
        if answer.error:
            raise _user_code(answer.error, answer.remedy or _LOOKS, answer.traceback)
        _require_columns(answer)
        return Result(
            {"rows": Rows(answer.rows), "metrics": Metrics(answer.metrics)}, Usage(units=count)
        )

    async def close(self) -> None:
        """Frees nothing: every process has ended with its work."""

    async def _answer(self, work: Work, inputs: Mapping[str, list[dict[str, object]]]) -> Answer:
        self._count += 1
        uid = _FIRST_UID + (os.getpid() << 8 | self._count & 0xFF) % (1 << 27)
        jail = self._scratch / f"jail-{self._count}"
        jail.mkdir(mode=0o700)
        timeout_s = float(work.params["timeoutS"])
        task = Task(
            code=str(work.params["code"]),
            function=str(work.params["function"]),
            inputs=dict(inputs),
            args=dict(work.params["args"]),
            jail=str(jail),
            wanted_uid=uid,
            cpu_s=math.ceil(timeout_s) + 1,
            memory_mib=int(work.params["memoryMib"]),
        )
        if os.geteuid() == 0:
            os.chown(jail, uid, uid)
        try:
            async with asyncio.timeout(timeout_s):
                data, code = await _run_process(msgspec.msgpack.encode(task))
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
        return _read(data, code, task)


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
            raise _user_code(
                "the process of the code wrote something else than an answer"
            ) from None
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGKILL & 0xFF):
        # The lane says out-of-memory where the kernel's counters do.
        raise AttemptError(Failure(FailureKind.ENGINE, "the process of the code was killed"))
    raise _user_code(
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


def _require_columns(answer: Answer) -> None:
    """Says now, as the user's own fault, what typing the rows would say later."""
    from flowmesh_core.dataset import columns_of, infer_schema  # noqa: PLC0415 - only here
    from flowmesh_core.identity import canonical_bytes  # noqa: PLC0415

    try:
        columns_of(answer.rows, infer_schema(answer.rows))
        canonical_bytes(answer.metrics)
    except IdentityError as error:
        raise _user_code(f"what the function returned: {error.reason}", error.remedy) from error


def _user_code(message: str, remedy: str = "", detail: str = "") -> AttemptError:
    return AttemptError(Failure(FailureKind.USER_CODE, message, remedy, detail))
