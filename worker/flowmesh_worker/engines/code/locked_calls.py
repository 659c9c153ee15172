"""Calls users' code, each call in a sandboxed process of its own.

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
from flowmesh_core.protocol.sandbox_levels import SandboxLevel
from flowmesh_worker.engines.code.answers import AnswerBytes, user_code_failed
from flowmesh_worker.engines.code.code_users import OtherTenantError
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest, SandboxResult
from flowmesh_worker.engines.code.processes import Take, run_process
from flowmesh_worker.engines.code.sidecar_client import VARIABLE, call_sidecar

_SIGNALS = 65
_LOWER = (SandboxLevel.LANDLOCK, SandboxLevel.WEAK)


class LockedCalls:
    """Runs functions of users' code; calls may run concurrently."""

    def __init__(self, scratch: Path, caller: str) -> None:
        """Prepares the directory.

        Args:
            scratch: for the processes' own directories.
            caller: the engine or tool, for the log.
        """
        self._scratch = scratch
        self._caller = caller
        self._warned = False
        self._numbers = itertools.count(1)
        # Other users may pass through to the code's own directory, but not list this one.
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
        tenant: str = "",
    ) -> SandboxResult:
        """Calls a function of a module.

        Args:
            code: the module.
            function: its function.
            inputs: rows by name.
            args: further keyword arguments.
            timeout_s: for the whole call, including the start of the process.
            memory_mib: in addition to the interpreter's own memory.
            tenant: whose code it is.

        Returns:
            Rows and metrics, or the error in the code.

        Raises:
            AttemptError: kind ``timeout``; ``user-code`` if the process ended without an answer; or
                ``engine`` if it was killed.
        """
        task = SandboxRequest(
            code=code,
            function=function,
            inputs=dict(inputs),
            args=dict(args),
            cpu_s=math.ceil(timeout_s) + 1,
            memory_mib=memory_mib,
            tenant=tenant,
        )
        with AnswerBytes(task.memory_mib, self._scratch) as answer_bytes:
            try:
                ended = await self._run(task, timeout_s, answer_bytes.take)
            except TimeoutError:
                raise AttemptError(
                    Failure(
                        FailureKind.TIMEOUT,
                        f"the code ran longer than its {timeout_s:g} s",
                        "raise with.timeoutS, or look for an infinite loop",
                    )
                ) from None
            answer = await asyncio.to_thread(_read, answer_bytes, ended, task)
        self._warn([*answer.lacks, *ended.lacks], answer.level)
        return answer

    def _warn(self, lacks: list[str], level: str) -> None:
        """Prints once, into the step's log, what the sandbox lacks and its level."""
        if self._warned or not (lacks or level in _LOWER):
            return
        self._warned = True
        without = f" without {'; '.join(lacks)}" if lacks else ""
        named = f" (sandbox level {level})" if level in tuple(SandboxLevel) else ""
        sys.stdout.write(f"{self._caller} runs here{without}{named}\n")

    async def _run(self, task: SandboxRequest, timeout_s: float, take: Take) -> ProcessEnd:
        socket = os.environ.get(VARIABLE)
        if not socket:
            async with asyncio.timeout(timeout_s):
                return await run_process(task, self._scratch, next(self._numbers), take)
        try:
            return await call_sidecar(socket, task, timeout_s, take)
        except TimeoutError:
            raise
        except OtherTenantError as error:
            failure = Failure(FailureKind.ENGINE, error.message, error.remedy)
            raise AttemptError(failure) from error
        except OSError as error:
            raise AttemptError(
                Failure(
                    FailureKind.ENGINE,
                    f"the container that runs users' code does not answer: {error}",
                    "check whether it ran out of memory; the pool sets its limit",
                )
            ) from error


def _read(answer: AnswerBytes, end: ProcessEnd, task: SandboxRequest) -> SandboxResult:
    code = end.code
    if end.exceeded:
        raise user_code_failed(
            f"the code and its processes used more than their {end.exceeded}",
            "raise with.memoryMib, load less at once, or start fewer processes",
        )
    if answer.size_bytes:
        try:
            return answer.decoded()
        except msgspec.DecodeError:
            raise user_code_failed(
                "the process of the code wrote something else than an answer"
            ) from None
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGKILL & 0xFF):
        # The engine instance turns this into out-of-memory if the kernel's counters say so.
        raise AttemptError(Failure(FailureKind.ENGINE, "the process of the code was killed"))
    raise user_code_failed(
        f"the process of the code {_ended(code)} before {task.function}() returned",
        f"it may have called os._exit(), or used more than its {task.memory_mib} MiB",
    )


def _ended(code: int) -> str:
    """Describes an exit code; in a PID namespace a signal appears as a code below 256."""
    number = -code if code < 0 else 256 - code
    if 0 < number < _SIGNALS:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(number).name}"
    return f"ended with code {code}"
