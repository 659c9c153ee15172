"""The engine host's event loop: loads one engine, runs its attempts and reports their results.

Called by ``python -m flowmesh_worker.host``. It never opens the store and never retries: the agent
does both.
"""

import asyncio
import gc
import itertools
import os
import socket
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_worker.engine_api import Engine, HostSettings, Input, Result, TreeInput
from flowmesh_worker.engines.preload import prepare
from flowmesh_worker.failures import engine_failure
from flowmesh_worker.host.call_server import CallServer
from flowmesh_worker.host.checkpoints import AttemptSignals, CheckpointTaker
from flowmesh_worker.host.libraries import loaded_libraries
from flowmesh_worker.host.peak_memory import PeakMemory
from flowmesh_worker.host.results import prepare_outputs
from flowmesh_worker.host.thread_safe_sender import ThreadSafeSender
from flowmesh_worker.host.work import AttemptDir, HostWork, local_inputs, verified_here
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.frames import (
    Asleep,
    AttemptEnded,
    Awake,
    Cancel,
    Close,
    FallAsleep,
    FromHost,
    HostUsage,
    ListenForCalls,
    Loaded,
    LoadFailed,
    Prepare,
    Prepared,
    Progressed,
    Release,
    RunAttempt,
    SleepFailed,
    Start,
    Stop,
    ToHost,
    WakeUp,
)

_PROGRESS_EVERY_S = 0.25
_EXIT_AGENT_LOST = 3
_EXIT_ENGINE_BROKEN = 4


class HostServer:
    """Serves one agent over one socket until it sends ``Close`` or disconnects."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._channel: Channel[ToHost] | None = None
        self._engine: Engine | None = None
        self._name = ""
        self._scratch = Path()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._directories: dict[str, AttemptDir] = {}
        self._signals: dict[str, AttemptSignals] = {}
        self._numbers = itertools.count(1)
        self._peak = PeakMemory()
        self._libraries: dict[str, str] = {}
        self._closed = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._calls: CallServer | None = None
        self._listening: asyncio.Task[None] | None = None
        self._sleeping: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Serves until closed, then cancels what still runs and closes the engine."""
        self._channel = await Channel[ToHost].over(
            self._connection, ToHost, self._receive, self._exit_without_agent
        )
        await self._closed.wait()
        for attempt_id, task in self._tasks.items():
            self._signals[attempt_id].cancel()
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._calls is not None:
            await self._calls.close()
        if self._engine is not None:
            await self._engine.close()
        self._channel.close()

    def _exit_without_agent(self) -> None:
        if not self._closed.is_set():
            # Results could not be reported; children die by their own parent-death signal.
            os._exit(_EXIT_AGENT_LOST)

    def _send(self, message: FromHost) -> None:
        assert self._channel is not None
        self._channel.send(message)

    def _receive(self, message: ToHost) -> None:
        match message:
            case RunAttempt():
                self._signals[message.attempt_id] = AttemptSignals()
                task = asyncio.get_running_loop().create_task(self._run(message))
                self._tasks[message.attempt_id] = task
            case Release():
                self._remove(message.attempt_id)
            case Stop():
                self._stop(message.attempt_id)
            case Cancel():
                self._cancel(message.attempt_id)
            case Prepare():
                self._prepare(message)
            case Start():
                self._starting = asyncio.get_running_loop().create_task(self._start(message))
            case ListenForCalls():
                listening = self._listen(Path(message.socket))
                self._listening = asyncio.get_running_loop().create_task(listening)
            case FallAsleep() | WakeUp():
                turning = self._turn(message)
                self._sleeping = asyncio.get_running_loop().create_task(turning)
            case Close():
                self._closed.set()

    def _stop(self, attempt_id: str) -> None:
        if attempt_id in self._signals:
            self._signals[attempt_id].stopping.set()

    def _cancel(self, attempt_id: str) -> None:
        if attempt_id in self._tasks:
            self._signals[attempt_id].cancel()
            # Cancelled after its first step: a task that is cancelled before that never enters its
            # ``try`` and would not report its end.
            asyncio.get_running_loop().call_soon(self._tasks[attempt_id].cancel)

    def _prepare(self, message: Prepare) -> None:
        answer = Prepared()
        try:
            prepare(message.modules, message.threads, on_devices=message.on_devices)
        except Exception as error:
            answer = Prepared(f"{type(error).__name__}: {error}")
        gc.freeze()  # libraries stay: the collector need not scan their objects
        self._send(answer)

    async def _start(self, start: Start) -> None:
        began = time.perf_counter()
        self._name = start.engine
        self._scratch = Path(start.scratch)
        _restrict_devices(start.devices)
        settings = HostSettings(
            devices=start.devices,
            memory_mib=start.memory_mib,
            threads=start.threads,
            signature_params=start.signature_params,
            scratch=self._scratch,
            mixed=frozenset(start.mixed),
            sleeps=start.sleeps,
        )
        components = {
            port: TreeInput(c.digest, Path(c.paths[0])) for port, c in start.components.items()
        }
        try:
            engine = _engine_class(start.loads)()
            self._engine = engine
            await engine.load(components, settings)
        except Exception as error:
            self._send(LoadFailed(engine_failure(error, start.engine)))
            self._closed.set()
            return
        elapsed = time.perf_counter() - began
        self._libraries = loaded_libraries()
        asleep_mib = int(getattr(engine, "asleep_mib", 0)) if start.sleeps else 0
        self._send(Loaded(max(1, int(engine.capacity)), elapsed, self._libraries, asleep_mib))

    async def _turn(self, message: FallAsleep | WakeUp) -> None:
        """Has the engine sleep or wake."""
        engine: Any = self._engine
        sleeps = isinstance(message, FallAsleep)
        began = time.perf_counter()
        try:
            await (engine.sleep() if sleeps else engine.wake())
        except Exception as error:
            self._send(SleepFailed(engine_failure(error, self._name)))
            return
        self._send(Asleep() if sleeps else Awake(time.perf_counter() - began))

    async def _listen(self, path: Path) -> None:
        if self._calls is None:
            engine: Any = self._engine
            serving = engine if hasattr(engine, "serves") else None
            self._calls = CallServer(serving, self._call_failed)
            try:
                await self._calls.listen(path)
            except OSError as error:
                sys.stdout.write(f"calls cannot be taken on {path}: {error}\n")

    def _call_failed(self, error: AttemptError) -> None:
        self._exit_broken(engine_failure(error, self._name))

    def new_directory(self) -> AttemptDir:
        """Returns a directory that no other attempt of this host uses or has used."""
        return AttemptDir(f"{self._scratch}/attempts/{next(self._numbers)}")

    async def _run(self, run: RunAttempt) -> None:
        began = time.perf_counter()
        directory = self.new_directory()
        self._directories[run.attempt_id] = directory
        outputs, failure, used = {}, None, HostUsage()
        inputs = local_inputs(run.inputs)
        try:
            result = await self._work(run, inputs, directory)
            outputs = await prepare_outputs(result.outputs, run.row_output, directory)
            used = self._used(result, time.perf_counter() - began)
        except asyncio.CancelledError:
            failure = FailureReport(FailureKind.CANCELLED.value, "the attempt was stopped")
        except Exception as error:
            failure = engine_failure(error, self._name)
            if failure.kind == FailureKind.HOST_CRASHED.value:
                self._exit_broken(failure)
        if failure is not None:
            used = HostUsage(time.perf_counter() - began, peak_memory_mib=self._peak.mib())
        keeps_files = failure is None and directory.made
        self._tasks.pop(run.attempt_id, None)
        self._signals.pop(run.attempt_id, None)
        if not keeps_files:
            self._remove(run.attempt_id)
        libraries, verified = self._imported_since(), verified_here(run.inputs, inputs)
        ended = AttemptEnded(
            run.attempt_id, outputs, failure, used, keeps_files, libraries, verified
        )
        self._send(ended)

    @staticmethod
    def _exit_broken(failure: FailureReport) -> None:
        """Exits, as the engine reports itself broken.

        The agent then finds out whether the kernel's out-of-memory killer ended a part of this
        process group.
        """
        sys.stdout.write(f"{failure.message}\n{failure.detail}\n")
        sys.stdout.flush()
        os._exit(_EXIT_ENGINE_BROKEN)

    def _imported_since(self) -> dict[str, str] | None:
        """Returns the libraries if they changed since the last report: engines import late."""
        now = loaded_libraries()
        if now == self._libraries:
            return None
        self._libraries = now
        return now

    async def _work(
        self, run: RunAttempt, inputs: Mapping[str, Input], directory: AttemptDir
    ) -> Result:
        assert self._engine is not None
        signals = self._signals[run.attempt_id]
        send = ThreadSafeSender(self._send)
        checkpoint = CheckpointTaker(run.attempt_id, self._scratch, send, signals)
        work = HostWork(run, inputs, directory, checkpoint, signals)
        return await self._engine.run(work, _Progress(send, run.attempt_id))

    def _used(self, result: Result, run_s: float) -> HostUsage:
        usage = result.usage
        return HostUsage(
            run_s=run_s,
            units=usage.units,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            joules=usage.joules,
            peak_memory_mib=usage.peak_memory_mib or self._peak.mib(),
        )

    def _remove(self, attempt_id: str) -> None:
        directory = self._directories.pop(attempt_id, None)
        if directory is not None:
            directory.remove()


class _Progress:
    """Limits progress to a few messages a second; the attempt's end reports the last value."""

    __slots__ = ("_attempt_id", "_next_s", "_send")

    def __init__(self, send: ThreadSafeSender, attempt_id: str) -> None:
        self._send = send
        self._attempt_id = attempt_id
        self._next_s = 0.0

    def __call__(self, done: float, total: float, unit: str) -> None:
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + _PROGRESS_EVERY_S
            self._send(Progressed(self._attempt_id, float(done), float(total), unit))


def _restrict_devices(devices: Collection[int]) -> None:
    """Hides all other devices from this process, which may have imported torch already."""
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))


def _engine_class(loads: str) -> Any:
    module, _, attribute = loads.partition(":")
    __import__(module)
    return getattr(sys.modules[module], attribute)
