"""A component host's end of its resident sandbox: starts it, and again where it ends."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from flowmesh_core.errors import AttemptError, Failure, FailureKind, ProtocolError
from flowmesh_core.protocol.framed_connection import FramedConnection
from flowmesh_worker.engines.code.call_limits import CallLimits, machine_groups
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    BatchEnded,
    CallResult,
    CodeLoaded,
    ForgetResults,
    FromSandbox,
    LoadCode,
    LoadedCode,
    ResultKind,
    RunBatch,
    received_result,
    sent_call,
)
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.processes import sandbox_environment, sandbox_uid
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, descriptor_pair
from flowmesh_worker.ipc.passed_values import StageBytes

_LOAD_WITHIN_S = 60.0
_FRAME_BYTES_MAX = 64 << 20
_CPU_S = 10**9
"""The process may live as long as its host; a batch has a time limit of its own."""


class _Channel(FramedConnection[FromSandbox], asyncio.Protocol):
    """The connection; the code behind it cannot have the host hold more than one large frame."""


class SandboxedCode:
    """Runs batches in the sandbox; one at a time."""

    def __init__(
        self, components: tuple[LoadedCode, ...], scratch: Path, memory_mib: int, namespace: str
    ) -> None:
        """Starts nothing.

        Args:
            components: the code.
            scratch: the code's own directory is created below it.
            memory_mib: in addition to the interpreter's own memory.
            namespace: whose code it is.
        """
        self._components = components
        self._scratch = scratch
        self._memory_mib = memory_mib
        self._namespace = namespace
        self._process: asyncio.subprocess.Process | None = None
        self._channel: _Channel | None = None
        self._descriptors: DescriptorSocket | None = None
        self._limits: CallLimits | None = None
        self._waiting: asyncio.Future[FromSandbox] | None = None
        self._starts = 0
        self._timed_out = False
        self._exceeded = ""
        self._breach = ""

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Starts the process and loads the code.

        Raises:
            AttemptError: of kind user-code where the code does not load.
        """
        request = self._new_jail()
        (ours, theirs), (descriptors, their_descriptors) = socket.socketpair(), descriptor_pair()
        self._descriptors = DescriptorSocket(descriptors)
        with theirs, their_descriptors:
            self._process = await self._spawn(theirs.fileno(), their_descriptors.fileno())
        self._limits = CallLimits(request)
        self._limits.begin(self._process.pid, await asyncio.to_thread(machine_groups))
        self._channel = await self._connected(ours)
        load = LoadCode(msgspec.msgpack.encode(request), self._components)
        loaded: FromSandbox | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOAD_WITHIN_S):
                loaded = await self._exchange(load)
        if not isinstance(loaded, CodeLoaded) or loaded.error:
            await self.close()
            why = loaded.error if isinstance(loaded, CodeLoaded) else self._end_reason()
            raise AttemptError(
                Failure(FailureKind.USER_CODE, f"the code does not load: {why}", "correct the code")
            )
        self._warn([*loaded.lacks, self._limits.lacks])

    def _new_jail(self) -> SandboxRequest:
        """Returns the limits of the next process, with a directory and a user id of its own."""
        self._scratch.chmod(0o711)  # the code's user passes through, and cannot list it
        self._starts += 1
        jail, uid = self._jail(), sandbox_uid()
        jail.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(jail, uid, uid)
        return SandboxRequest(
            code="",
            function="",
            inputs={},
            args={},
            cpu_s=_CPU_S,
            memory_mib=self._memory_mib,
            jail=str(jail),
            wanted_uid=uid,
            tenant=self._namespace,
        )

    def _warn(self, lacks: Sequence[str]) -> None:
        """Prints once what the sandbox lacks."""
        if self._starts == 1 and any(lacks):
            sys.stdout.write(f"code.component runs here without {'; '.join(filter(None, lacks))}\n")

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Runs a batch.

        Where the process ends on it or takes too long, it is started again and the members run one
        by one, so that only the one at fault fails.

        Args:
            component: whose function gets the batch.
            calls: its members.
            within_s: how long it may take.
            passed: of each member, inputs that components of other hosts have made.

        Raises:
            AttemptError: the code does not load again.
        """
        passed = passed or [{}] * len(calls)
        results = await self._run_once(component, calls, within_s, passed)
        if results is not None:
            return results
        await self.close()
        reason = self._end_reason()
        await self.start()
        if len(calls) == 1:
            return [CallResult(ResultKind.RAISED, error=reason)]
        alone = zip(calls, passed, strict=True)
        return [(await self.run(component, [call], within_s, [p]))[0] for call, p in alone]

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that the process keeps."""
        if self._channel is not None:
            self._channel.send(ForgetResults(keys))

    async def close(self) -> None:
        """Ends the process, and all that it started."""
        process, channel, limits = self._process, self._channel, self._limits
        self._process = self._channel = self._limits = None
        if self._descriptors is not None:
            self._descriptors.close()
            self._descriptors = None
        if channel is not None:
            channel.close()
        if process is not None:
            if limits is not None:
                await limits.end()
                self._exceeded = limits.exceeded
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            shutil.rmtree(self._jail(), ignore_errors=True)

    async def _run_once(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]],
    ) -> list[CallResult] | None:
        descriptors, self._breach = self._descriptors, ""
        if descriptors is None:
            return None
        try:
            sent = tuple(map(sent_call, calls, passed, itertools.repeat(descriptors)))
            async with asyncio.timeout(within_s):
                ended = await self._exchange(RunBatch(component, sent))
            if not isinstance(ended, BatchEnded) or len(ended.results) != len(calls):
                return None
            return [received_result(one, descriptors) for one in ended.results]
        except TimeoutError:
            self._timed_out = True
        except ProtocolError as error:  # the code passed something else than a value
            self._breach = error.message
        return None

    async def _exchange(self, message: LoadCode | RunBatch) -> FromSandbox | None:
        """Sends a message and returns its answer; None where the process has ended."""
        channel = self._channel
        if channel is None:
            return None
        self._timed_out = False
        self._waiting = asyncio.get_running_loop().create_future()
        channel.send(message)
        try:
            return await self._waiting
        except ConnectionError:
            return None
        finally:
            self._waiting = None

    def _end_reason(self) -> str:
        if self._timed_out:
            return "the code ran longer than the request's timeout"
        if self._breach:
            return f"the code was ended: {self._breach}"
        if self._exceeded:
            return f"the code used more than its {self._exceeded}"
        return "the process of the code ended; it may have used too much memory"

    async def _connected(self, ours: socket.socket) -> _Channel:
        loop = asyncio.get_running_loop()
        channel = _Channel(
            FromSandbox, self._received, self._lost, loop.call_soon, _FRAME_BYTES_MAX
        )
        ours.setblocking(False)
        await loop.create_connection(lambda: channel, sock=ours)
        return channel

    def _received(self, message: FromSandbox) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(message)

    def _lost(self) -> None:
        self._channel = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError())

    async def _spawn(self, theirs: int, descriptors: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-s",
            "-m",
            "flowmesh_worker.engines.code.resident",
            str(theirs),
            str(descriptors),
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs, descriptors),
            env=sandbox_environment(),
            start_new_session=True,
        )

    def _jail(self) -> Path:
        return self._scratch / f"resident-{self._starts}"
