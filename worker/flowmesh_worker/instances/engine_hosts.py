"""Engine hosts: starts, messages and ends the processes of engine instances.

The shell calls it with the worker agent's instructions; what hosts do becomes events. The only
decision here is what the end of a process means: it crashed, or the kernel killed it for lack of
memory.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instances import CLOSE_WITHIN_S
from flowmesh_core.worker_agent.instructions import StartHost
from flowmesh_core.worker_agent.reports import figure
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.instances.oom import KillCounter, OomKills, OomVictims
from flowmesh_worker.instances.scratch import Scratch
from flowmesh_worker.instances.standby_hosts import StandbyProcess
from flowmesh_worker.ipc.frames import (
    Asleep,
    AttemptEnded,
    Awake,
    Checkpointed,
    FallAsleep,
    FromHost,
    HostInput,
    ListenForCalls,
    Loaded,
    LoadFailed,
    Progressed,
    RunAttempt,
    SleepFailed,
    Start,
    ToHost,
    WakeUp,
)
from flowmesh_worker.ipc.host_directory import remove_host_folder, socket_folder

CALLS_SOCKET = "calls.sock"
Post = Callable[[e.Event], None]


@dataclass(slots=True, eq=False)
class EngineHost:
    """One host process.

    Attributes:
        start: the message that has it load its engine.
        folder: the directory that it may write into.
        running: ids of the attempts that it was sent and has not ended.
        journals: directory and progress of the journals of those, by attempt.
        is_asleep: whether it was put asleep, and not woken since.
    """

    instance_id: int
    signature: Digest
    start: Start
    folder: Path
    process: HostProcess
    running: set[str] = field(default_factory=set)
    journals: dict[str, tuple[str, float]] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    is_asleep: bool = False

    @property
    def engine(self) -> str:
        """The name of its engine."""
        return self.start.engine


class EngineHosts:
    """All engine hosts of a worker."""

    def __init__(
        self,
        engines: Engines,
        cpus: int,
        scratch: Scratch,
        post: Post,
        *,
        ended: Callable[[int, AttemptEnded], None],
        checkpoint: Callable[[str, str, float], None],
        sleeps: bool = False,
        oom_kills: KillCounter | None = None,
    ) -> None:
        """Starts none.

        Args:
            engines: the installed ones.
            cpus: CPU threads of the worker.
            scratch: where hosts write.
            post: hands events to the agent.
            ended: called with the instance's number when a host has ended an attempt.
            checkpoint: called with attempt, directory and progress of a new checkpoint.
            sleeps: whether hosts may be put asleep; engines prepare for it as they load.
            oom_kills: counts processes that the kernel has killed for lack of memory.
        """
        self._engines = engines
        self._cpus = cpus
        self._scratch = scratch
        self._post = post
        self._ended = ended
        self._checkpoint = checkpoint
        self._sleeps = sleeps
        self._oom_victims = OomVictims(oom_kills or OomKills())
        self._hosts: dict[int, EngineHost] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __iter__(self) -> Iterator[EngineHost]:
        """Iterates over a copy of the hosts."""
        return iter(list(self._hosts.values()))

    def start(
        self,
        instruction: StartHost,
        components: Mapping[str, HostInput],
        mixed: tuple[str, ...],
        standby: StandbyProcess | None,
    ) -> None:
        """Has a new host, or a standby host, load an engine.

        Args:
            instruction: of the worker agent.
            components: what it loads, on the local disk, by port.
            mixed: ports of components that come with each attempt.
            standby: the host to use; None starts a process.
        """
        wanted, number = instruction.wanted, instruction.instance_id
        listeners = (
            partial(self._received, number),
            lambda line: self._post(e.HostPrinted(number, line)),
            partial(self._exited, number),
        )
        try:
            folder = standby.folder if standby else self._scratch.new_host_folder()
        except OSError as error:
            self._post(e.HostExited(number, _not_started(wanted.engine, error)))
            return
        if standby is not None:
            standby.process.set_listeners(*listeners)
        process = standby.process if standby else HostProcess(*listeners)
        start = Start(
            engine=wanted.engine,
            loads=self._engines.loads(wanted.engine),
            components=dict(components),
            devices=instruction.reservation.devices,
            memory_mib=wanted.memory_mib,
            threads=self._engines.threads(wanted.engine, self._cpus),
            signature_params=wanted.signature_params,
            scratch=str(folder),
            mixed=mixed,
            sleeps=self._sleeps,
        )
        host = EngineHost(number, wanted.signature, start, folder, process)
        self._hosts[number] = host
        self._oom_victims.add(number)
        self._empty.clear()
        self._do(host, self._start_process(host))

    def listen_for_calls(self, instance_id: int) -> Path | None:
        """Has a host take calls of services; returns its socket, or None if the host is gone."""
        host = self._hosts.get(instance_id)
        if host is None:
            return None
        path = socket_folder(host.folder) / CALLS_SOCKET
        host.process.send(ListenForCalls(str(path)))
        return path

    def send(self, instance_id: int, message: ToHost) -> None:
        """Sends a message to a host; does nothing if the host is gone."""
        host = self._hosts.get(instance_id)
        if host is None:
            return
        if isinstance(message, RunAttempt):
            host.running.add(message.attempt_id)
        elif isinstance(message, FallAsleep | WakeUp):
            host.is_asleep = isinstance(message, FallAsleep)
        host.process.send(message)

    def close(self, instance_id: int, within_s: float) -> None:
        """Asks a host to exit; kills it after ``within_s``."""
        host = self._hosts.get(instance_id)
        if host is not None:
            self._do(host, host.process.close(within_s))

    def kill(self, instance_id: int) -> None:
        """Kills a host."""
        host = self._hosts.get(instance_id)
        if host is not None:
            host.process.kill()

    async def close_all(self, within_s: float) -> None:
        """Asks all hosts to exit; kills those that have not after ``within_s``."""
        for host in self:
            self.close(host.instance_id, within_s)
        try:
            await asyncio.wait_for(self._empty.wait(), within_s)
        except TimeoutError:
            for host in self:
                host.process.kill()
            await self._empty.wait()

    async def _start_process(self, host: EngineHost) -> None:
        environment = host_environment(os.environ, host.start.threads)
        try:
            await host.process.start(environment | {"TMPDIR": str(host.folder)})
        except OSError as error:
            self._remove(host, _not_started(host.engine, error))
            return
        host.process.send(host.start)
        self._post(e.HostStarted(host.instance_id))

    def _received(self, instance_id: int, message: FromHost) -> None:
        host = self._hosts[instance_id]
        if isinstance(message, AttemptEnded | Progressed | Checkpointed):
            if not _is_of(host, message):
                return
        elif isinstance(message, Asleep | Awake | SleepFailed):
            self._post(_turned(instance_id, message))
            return
        match message:
            case AttemptEnded(failure=failure) if failure is not None:
                failure = self._or_out_of_memory(host, failure)
                self._ended(instance_id, msgspec.structs.replace(message, failure=failure))
            case AttemptEnded():
                self._ended(instance_id, message)
            case Progressed(attempt_id=attempt_id, done=done, total=total, unit=unit):
                units = int(figure(done))
                self._post(e.AttemptProgressed(instance_id, attempt_id, units, done, total, unit))
            case Checkpointed():
                self._checkpointed(host, message)
            case Loaded(capacity, load_s, libraries, asleep_mib):
                self._post(e.HostLoaded(instance_id, capacity, load_s, libraries, asleep_mib))
            case LoadFailed(failure=failure):
                failure = self._or_out_of_memory(host, failure)
                self._post(e.HostLoadFailed(instance_id, failure))
                # It ends by itself, unless what has been loaded of its engine cannot be closed.
                self.close(instance_id, CLOSE_WITHIN_S)

    def _checkpointed(self, host: EngineHost, message: Checkpointed) -> None:
        if message.is_journal:
            host.journals[message.attempt_id] = message.path, message.done
        else:
            self._checkpoint(message.attempt_id, message.path, message.done)

    def _exited(self, instance_id: int, code: int) -> None:
        host = self._hosts[instance_id]
        if code == -signal.SIGKILL and self._oom_victims.blame(instance_id):
            failure = _out_of_memory(host.engine, "")
        else:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
            failure = FailureReport(
                FailureKind.HOST_CRASHED.value, f"the host of {host.engine} {how}"
            )
        self._remove(host, failure)

    def _remove(self, host: EngineHost, failure: FailureReport) -> None:
        for attempt_id, (path, done) in host.journals.items():
            self._checkpoint(attempt_id, path, done)  # before the directory goes with the host
        del self._hosts[host.instance_id]
        self._oom_victims.remove(host.instance_id)
        self._post(e.HostExited(host.instance_id, failure))
        remove_host_folder(host.folder)
        if not self._hosts:
            self._empty.set()

    def _or_out_of_memory(self, host: EngineHost, failure: FailureReport) -> FailureReport:
        """Returns the failure, or out-of-memory if the kernel killed a process of the host."""
        is_plain = failure.kind == FailureKind.ENGINE.value
        if is_plain and self._oom_victims.blame(host.instance_id):
            return _out_of_memory(host.engine, failure.detail)
        return failure

    @staticmethod
    def _do(host: EngineHost, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        host.tasks.add(task)
        task.add_done_callback(host.tasks.discard)


def _is_of(host: EngineHost, message: AttemptEnded | Progressed | Checkpointed) -> bool:
    """Whether a message is of an attempt that runs in this host, and then takes its end from it.

    Code in a host must not report anything of attempts in other hosts.
    """
    if message.attempt_id not in host.running:
        return False
    if isinstance(message, AttemptEnded):
        host.running.discard(message.attempt_id)
        host.journals.pop(message.attempt_id, None)
    return True


def _turned(instance_id: int, message: Asleep | Awake | SleepFailed) -> e.Event:
    match message:
        case Asleep():
            return e.HostAsleep(instance_id)
        case Awake(wake_s=wake_s):
            return e.HostAwake(instance_id, wake_s)
    return e.HostSleepFailed(instance_id, message.failure)


def _not_started(engine: str, error: OSError) -> FailureReport:
    return FailureReport(
        FailureKind.HOST_CRASHED.value, f"the host of {engine} did not start: {error}"
    )


def _out_of_memory(engine: str, detail: str) -> FailureReport:
    return FailureReport(
        FailureKind.OUT_OF_MEMORY.value,
        f"the kernel killed a process of {engine} for lack of memory",
        "ask for more with resources.memory, or give it less at once",
        detail=detail,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
