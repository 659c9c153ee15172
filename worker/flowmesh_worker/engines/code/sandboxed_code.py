"""A component host's end of its resident sandbox: starts it, and again where it ends."""

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flowmesh_core.errors import AttemptError, Failure, FailureKind, ProtocolError
from flowmesh_core.protocol.framed_connection import FramedConnection
from flowmesh_worker.engines.code.code_users import OtherTenantError
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
    RunIteration,
    StepMember,
    received_result,
    sent_call,
)
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, give_descriptors
from flowmesh_worker.ipc.passed_values import StageBytes

_LOAD_WITHIN_S = 60.0
_FRAME_BYTES_MAX = 64 << 20
_CPU_S = 10**9
"""The process may live as long as its host; a batch has a time limit of its own."""


class _Channel(FramedConnection[FromSandbox], asyncio.Protocol):
    """The connection; the code behind it cannot have the host hold more than one large frame."""


class Resident(Protocol):
    """A resident sandbox that was started.

    Attributes:
        channel: the host's end of its connection.
    """

    channel: socket.socket

    @property
    def pid(self) -> int:
        """The process id; 0 where it is in another container."""
        ...

    @property
    def lacks(self) -> str:
        """Which protection around the process is not supported; empty for none."""
        ...

    async def end(self) -> str:
        """Ends it; returns what it had more of than it may, where it was killed for that."""
        ...


class Residents(Protocol):
    """Starts resident sandboxes: on this machine, or in the container of users' code."""

    async def start(self, task: SandboxRequest) -> Resident:
        """Starts one within the limits of ``task``; it waits for its code.

        Raises:
            OSError: the container does not run, or ended.
            OtherTenantError: it serves another tenant.
        """
        ...


class SandboxedCode:
    """Runs batches in the sandbox; one at a time.

    Attributes:
        iterating: names of the components that iterate, once it is started.
    """

    def __init__(
        self,
        components: tuple[LoadedCode, ...],
        residents: Residents,
        memory_mib: int,
        namespace: str,
    ) -> None:
        """Starts nothing.

        Args:
            components: the code.
            residents: starts its sandbox.
            memory_mib: in addition to the interpreter's own memory.
            namespace: whose code it is.
        """
        self._components = components
        self._residents = residents
        self._task = SandboxRequest(
            code="",
            function="",
            inputs={},
            args={},
            cpu_s=_CPU_S,
            memory_mib=memory_mib,
            tenant=namespace,
        )
        self._resident: Resident | None = None
        self._channel: _Channel | None = None
        self._descriptors: DescriptorSocket | None = None
        self._waiting: asyncio.Future[FromSandbox] | None = None
        self._has_started = False
        self._timed_out = False
        self._exceeded = ""
        self._breach = ""
        self.iterating: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """The process id; 0 while there is none, or it is in another container."""
        return self._resident.pid if self._resident is not None else 0

    async def start(self) -> None:
        """Starts the process and loads the code.

        Raises:
            AttemptError: of kind user-code where the code does not load; of kind engine where the
                container of users' code does not start it.
        """
        self._resident = await self._started()
        with contextlib.suppress(OSError):  # it has ended, which its answer shows
            self._descriptors = give_descriptors(self._resident.channel)
        self._channel = await self._connected(self._resident.channel)
        loaded: FromSandbox | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOAD_WITHIN_S):
                loaded = await self._exchange(LoadCode(self._components))
        if not isinstance(loaded, CodeLoaded) or loaded.error:
            await self.close()
            why = loaded.error if isinstance(loaded, CodeLoaded) else self._end_reason()
            raise AttemptError(
                Failure(FailureKind.USER_CODE, f"the code does not load: {why}", "correct the code")
            )
        self.iterating = loaded.iterating
        self._warn([*loaded.lacks, self._resident.lacks if self._resident else ""])

    async def _started(self) -> Resident:
        try:
            return await self._residents.start(self._task)
        except OtherTenantError as error:
            failure = Failure(FailureKind.ENGINE, error.message, error.remedy)
            raise AttemptError(failure) from error
        except (OSError, TimeoutError) as error:
            raise AttemptError(
                Failure(
                    FailureKind.ENGINE,
                    f"the sandbox of the code does not start: {error or type(error).__name__}",
                    "in a pod, check whether the container `code` ran out of memory",
                )
            ) from error

    def _warn(self, lacks: Sequence[str]) -> None:
        """Prints once what the sandbox lacks."""
        if not self._has_started and any(lacks):
            sys.stdout.write(f"code.component runs here without {'; '.join(filter(None, lacks))}\n")
        self._has_started = True

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Runs a batch.

        Where the process ends on it or takes too long, it is started again and the members run one
        by one, so that only the one at fault fails. One that has ended before is only started.

        Args:
            component: whose function gets the batch.
            calls: its members.
            within_s: how long it may take.
            passed: of each member, inputs that components of other hosts have made.

        Raises:
            AttemptError: the code does not load again.
        """
        passed = passed or [{}] * len(calls)

        def batch(descriptors: DescriptorSocket) -> RunBatch:
            sent = map(sent_call, calls, passed, itertools.repeat(descriptors))
            return RunBatch(component, tuple(sent))

        ran = await self._run_once(batch, len(calls), within_s)
        if isinstance(ran, StepResults):
            return ran.results
        if len(calls) == 1:
            return [CallResult(ResultKind.RAISED, error=ran)]
        alone = zip(calls, passed, strict=True)
        return [(await self.run(component, [call], within_s, [p]))[0] for call, p in alone]

    async def step(
        self,
        component: str,
        members: Sequence[StepMember],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        """Runs a step of a component that iterates.

        Where the process ends on it or takes too long, it is started again, and the calls have to
        begin again: a call that was alone has failed.

        Args:
            component: whose method gets the states.
            members: the calls.
            within_s: how long the step may take.
            passed: of each member, inputs that components of other hosts have made.

        Raises:
            AttemptError: the code does not load again.
        """
        passed = passed or [{}] * len(members)

        def step(descriptors: DescriptorSocket) -> RunIteration:
            sent = (
                member
                if member.call is None
                else StepMember(member.state, sent_call(member.call, inputs, descriptors))
                for member, inputs in zip(members, passed, strict=True)
            )
            return RunIteration(component, tuple(sent))

        ran = await self._run_once(step, len(members), within_s)
        if isinstance(ran, StepResults):
            return ran
        if len(members) == 1:
            return StepResults([CallResult(ResultKind.RAISED, error=ran)])
        return StepResults([CallResult(ResultKind.RESTART)] * len(members))

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that the process keeps."""
        if self._channel is not None:
            self._channel.send(ForgetResults(keys))

    async def close(self) -> None:
        """Ends the process, and all that it started."""
        resident, channel = self._resident, self._channel
        self._resident = self._channel = None
        if self._descriptors is not None:
            self._descriptors.close()
            self._descriptors = None
        if channel is not None:
            channel.close()
        if resident is not None:
            self._exceeded = await resident.end()

    async def _run_once(
        self,
        message: Callable[[DescriptorSocket], RunBatch | RunIteration],
        count: int,
        within_s: float,
    ) -> StepResults | str:
        """Returns the results of a batch; where the process failed on it, why, and it runs again.

        Raises:
            AttemptError: the code does not load again.
        """
        if self._channel is None:  # it ended while it was idle, so this batch is not at fault
            await self.close()
            await self.start()
        results = await self._results(message, count, within_s)
        if results is not None:
            return results
        await self.close()
        reason = self._end_reason()
        await self.start()
        return reason

    async def _results(
        self,
        message: Callable[[DescriptorSocket], RunBatch | RunIteration],
        count: int,
        within_s: float,
    ) -> StepResults | None:
        descriptors, self._breach = self._descriptors, ""
        if descriptors is None:
            return None
        try:
            sent = message(descriptors)
            async with asyncio.timeout(within_s):
                ended = await self._exchange(sent)
            if not isinstance(ended, BatchEnded) or len(ended.results) != count:
                return None
            results = [received_result(one, descriptors) for one in ended.results]
            return StepResults(results, ended.start_s, ended.finish_s)
        except TimeoutError:
            self._timed_out = True
        except ProtocolError as error:  # the code passed something else than a value
            self._breach = error.message
        return None

    async def _exchange(self, message: LoadCode | RunBatch | RunIteration) -> FromSandbox | None:
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
