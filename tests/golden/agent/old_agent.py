"""Drives the worker's agent through a scenario in virtual time, and records what it does.

This is temporary: it goes together with the classes that it drives, which are the agent itself and
all of its parts that decide, unchanged. Only what touches the outside is replaced: the connection,
host processes, the store, and the clock. ``python -m tests.golden.agent.old_agent`` records anew.
"""

import asyncio
import itertools
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.golden.agent.format import (
    OLD,
    UNITS,
    Attempt,
    Connect,
    Disconnect,
    Effect,
    EffectKind,
    Fault,
    Input,
    Message,
    Orphan,
    Prewarm,
    Recording,
    Scenario,
    Send,
    Sigterm,
    done_units,
    ordered,
    seconds,
    write_recording,
)
from tests.golden.agent.scenarios import all_scenarios

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.errors import FailureKind, FlowMeshError, LostBlobError, StoreError
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    Desired,
    EngineInstanceState,
    FailureReport,
    Hello,
    InputRef,
    PrewarmSpec,
    Sync,
    WorkerShape,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_worker.agent import agent as agent_module
from flowmesh_worker.agent import attempts as attempts_module
from flowmesh_worker.agent.agent import Agent
from flowmesh_worker.agent.connection import OrphanedError
from flowmesh_worker.agent.report_buffer import ReportBuffer
from flowmesh_worker.data import components as components_module
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs
from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.engines.registry import EngineEntry, Engines
from flowmesh_worker.instances import instance as instance_module
from flowmesh_worker.instances import instances as instances_module
from flowmesh_worker.instances import standby as standby_module
from flowmesh_worker.instances.instances import EngineInstances
from flowmesh_worker.instances.standby import StandbyHosts
from flowmesh_worker.ipc.frames import (
    AttemptEnded,
    Cancel,
    Checkpointed,
    Close,
    FromHost,
    HostInput,
    HostOutput,
    HostUsage,
    Loaded,
    LoadFailed,
    Prepare,
    Prepared,
    Progressed,
    Release,
    RunAttempt,
    Start,
    Stop,
    ToHost,
)
from flowmesh_worker.settings import WorkerSettings
from flowmesh_worker.shape import Devices

if TYPE_CHECKING:
    from selectors import SelectorKey

_BEGIN_S = 1000.0  # some places take a monotonic time of 0 for none
_EPOCH_S = 1_700_000_000.0
_TICK_DIGITS = 9
_SYNC_S = 1.0
_ENDS_AGAIN_BEATS = 30


class _Clock:
    """Virtual time."""

    def __init__(self) -> None:
        self.now_s = _BEGIN_S

    def advance(self, by_s: float) -> None:
        # Rounded, so that sums of durations are equal in whatever order they are made.
        self.now_s = round(self.now_s + by_s, _TICK_DIGITS)

    @property
    def t(self) -> float:
        return seconds(self.now_s - _BEGIN_S)


class _Selector(selectors.SelectSelector):
    """Waits in virtual time; what ends an instant is done before time goes by."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock
        self.end_instant: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> "list[tuple[SelectorKey, int]]":
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0) or self.end_instant():
            return ready
        if timeout is None:
            raise RuntimeError("nothing is left that could ever happen")
        self._clock.advance(timeout)
        return []


class _Engines(Engines):
    """The engines of a scenario, with its preloads."""

    def __init__(self, scenario: Scenario) -> None:
        entries = [EngineEntry(_contract(e), "none:None") for e in scenario.engines]
        super().__init__(entries, on_devices=scenario.devices > 0)
        self._preload_of = {e.name: e.preload for e in scenario.engines if e.preload}
        self._preloads = {p.name: p for p in scenario.preloads}

    def preparation(self, name: str, params: Mapping[str, Any]) -> HostPreload | None:
        preload = self._preloads.get(self._preload_of.get(name, ""))
        return HostPreload(preload.name, (preload.name,), preload.memory_mib) if preload else None


def _contract(engine: Any) -> EngineContract:
    return EngineContract(
        name=engine.name,
        version=1,
        implementation=1,
        inputs=tuple(
            Port(p, PortKind.ADAPTER, required=False, component=True, mixable=True)
            for p in engine.mixable
        ),
        outputs=(Port("out", PortKind.BLOB),),
        needs_gpu_class="accelerator" if engine.accelerated else "host",
    )


def _error(kind: str, digest: str) -> Exception:
    match kind:
        case "missing-blob":
            return LostBlobError("no such blob", digest=digest)
        case "bad-input":
            return FlowMeshError("not what it should be")
        case "store":
            return StoreError("the store does not work")
    raise ValueError(f"{kind} is not a kind of a failing fetch")


def _failure(kind: str) -> FailureReport:
    return FailureReport(FailureKind(kind).value, "the scenario says so")


class World:
    """A scenario, and what it has recorded."""

    connection: "_Connection"

    def __init__(self, scenario: Scenario, clock: _Clock) -> None:
        self.scenario = scenario
        self.clock = clock
        self.effects: list[Effect] = []
        self.recording = True
        self.attempts = {a.id: a for a in scenario.attempts}
        self.signatures = {s.name: s for s in scenario.signatures}
        self.components = {c.digest: c for c in scenario.components}
        self.preloads = {p.name: p for p in scenario.preloads}
        self.oom_kills = 0
        self.hosts: list[_Host] = []
        self.ran_in: dict[str, _Host] = {}
        self._phases: dict[str, str] = {}

    def add(self, kind: EffectKind, *details: Any) -> None:
        if self.recording:
            self.effects.append((self.clock.t, kind.value, *details))

    def end_instant(self, agent: Agent) -> bool:
        """Does what is done at the end of an instant; whether that may go on."""
        for attempt_id, attempt in agent._attempts._attempts.items():
            if self._phases.get(attempt_id) != attempt.phase:
                self._phases[attempt_id] = attempt.phase
                self.add(EffectKind.PHASE, attempt_id, attempt.phase)
        return self.connection.end_instant()

    def assignment(self, attempt_id: str) -> Assignment:
        attempt = self.attempts[attempt_id]
        signature = self.signatures[attempt.signature]
        trees = {f"c{i}": ("model", d) for i, d in enumerate(signature.components)}
        if attempt.adapter:
            trees["adapter"] = ("adapter", attempt.adapter)
        refs = {port: _ref(kind, digest) for port, (kind, digest) in trees.items()}
        if attempt.fetch_s is not None:
            refs["data"] = _ref("blob", attempt_id)
        return Assignment(
            attempt_id=attempt_id,
            action_id=Digest(attempt_id),
            signature=Digest(signature.name),
            engine=signature.engine,
            contract=1,
            implementation=1,
            params={},
            fields={},
            inputs=refs,
            components=tuple(trees),
            memory_mib=signature.memory_mib,
            tensor_parallel=signature.devices,
            priority=attempt.priority,
            timeout_s=attempt.timeout_s,
            isolate=attempt.isolate,
            resume=None if attempt.resume_s is None else _ref("model", f"{attempt_id}@"),
        )

    def prewarm(self, entry: Prewarm) -> PrewarmSpec:
        signature = self.signatures[entry.signature]
        return PrewarmSpec(
            signature=Digest(signature.name),
            engine=signature.engine,
            contract=1,
            implementation=entry.implementation,
            components={f"c{i}": Digest(d) for i, d in enumerate(signature.components)},
            memory_mib=entry.memory_mib or signature.memory_mib,
            tensor_parallel=signature.devices,
        )


def _ref(kind: str, digest: str) -> InputRef:
    return InputRef(Artifact(kind, Digest(digest), Digest(digest)))


@dataclass(eq=False)
class _Running:
    attempt: Attempt
    began_s: float
    resumed: bool
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    cancelled: bool = False
    stopping: bool = False

    def clear(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class _Host:
    """In place of ``HostProcess``: has its interface, and the scenario's physics behind it."""

    def __init__(
        self,
        world: World,
        on_message: Callable[[FromHost], None],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._world = world
        self._on_message, self._on_line, self._on_exit = on_message, on_line, on_exit
        self.log: deque[str] = deque(maxlen=50)
        self.key = ""
        self.signature = ""
        self.preload = ""
        self.silent_s = 0.0
        self.is_standby = False
        self.started = False
        self.exited = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._killed = False
        self._closing = False
        self._busy_until_s = 0.0
        self._running: dict[str, _Running] = {}
        self._timers: list[asyncio.TimerHandle] = []
        world.hosts.append(self)

    @property
    def pid(self) -> int:
        return 1 if self.started else 0

    def hand_over(
        self,
        on_message: Callable[[FromHost], None],
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._on_message, self._on_line, self._on_exit = on_message, on_line, on_exit
        self.is_standby = False
        self.log.clear()

    async def start(self, environment: Mapping[str, str]) -> None:
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        if self.preload:
            preload = self._world.preloads[self.preload]
            start_s, fails = preload.start_s, preload.failure == "start"
        else:
            signature = self._world.signatures[self.signature]
            start_s, fails = signature.start_s, signature.start_fails
        await asyncio.sleep(start_s)
        if fails:
            self.exited.set()
            raise OSError("no room for another process")
        self.started = True
        if self._killed:
            self._soon_killed()

    def send(self, message: ToHost) -> None:
        if not self.started or self.exited.is_set():
            return
        match message:
            case Prepare():
                preload = self._world.preloads[self.preload]
                self._busy_until_s = self._world.clock.now_s + preload.import_s
                self._later(preload.import_s, self._prepared)
            case Start():
                signature = self._world.signatures[self.signature]
                waits_s = max(0.0, self._busy_until_s - self._world.clock.now_s)
                self._later(waits_s + signature.load_s, self._loaded)
            case RunAttempt():
                self._run(message)
            case Stop(attempt_id):
                self._world.add(EffectKind.STOP, self.key, attempt_id)
                self._stop(attempt_id)
            case Cancel(attempt_id):
                self._world.add(EffectKind.CANCEL, self.key, attempt_id)
                self._cancel(attempt_id)
            case Release(attempt_id):
                self._world.add(EffectKind.RELEASE, self.key, attempt_id)
            case Close():
                self._world.add(EffectKind.HOST_CLOSE, self.key)
                self._close()

    def kill(self) -> None:
        if self.exited.is_set():
            return
        if not self._killed:
            if self.is_standby:
                self._world.add(EffectKind.STANDBY_STOP, self.preload)
            else:
                self._world.add(EffectKind.HOST_KILL, self.key)
            if self.started:
                self._soon_killed()
        self._killed = True

    async def end(self) -> None:
        self.kill()
        if self._starting is not None:
            await asyncio.wait([self._starting])
            await self.exited.wait()

    async def close(self, within_s: float) -> None:
        if not self.started:
            return
        self.send(Close())
        try:
            await asyncio.wait_for(self.exited.wait(), within_s)
        except TimeoutError:
            self.kill()
            await self.exited.wait()

    def exit(self, code: int) -> None:
        if self.exited.is_set():
            return
        for running in self._running.values():
            running.clear()
        for timer in self._timers:
            timer.cancel()
        self.exited.set()
        self._on_exit(code)

    def _soon_killed(self) -> None:
        asyncio.get_running_loop().call_soon(self.exit, -9)

    def _later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.get_running_loop().call_later(delay_s, call)
        self._timers.append(timer)
        return timer

    def _prepared(self) -> None:
        match self._world.preloads[self.preload].failure:
            case "exit":
                self.exit(1)
            case "import":
                self._on_message(Prepared("no such library"))
            case _:
                self._on_message(Prepared())

    def _loaded(self) -> None:
        signature = self._world.signatures[self.signature]
        if self._closing:
            return
        if signature.load_failure == "crash":
            self.exit(1)
        elif signature.load_failure:
            self._on_message(LoadFailed(_failure(signature.load_failure)))
            asyncio.get_running_loop().call_soon(self.exit, 1)
        else:
            engine = next(e for e in self._world.scenario.engines if e.name == signature.engine)
            self._on_message(Loaded(engine.capacity, signature.load_s, {}))

    def _run(self, message: RunAttempt) -> None:
        world, attempt = self._world, self._world.attempts[message.attempt_id]
        resumed = message.resume is not None
        world.add(EffectKind.RUN, self.key, attempt.id, resumed)
        world.ran_in[attempt.id] = self
        running = _Running(attempt, world.clock.now_s, resumed)
        self._running[attempt.id] = running
        for fractions, event in (
            (attempt.lines, self._print),
            (attempt.progress, self._progress),
            (attempt.checkpoints, self._checkpoint),
        ):
            for fraction in fractions:
                delay_s = attempt.offset_s(fraction, resumed=resumed)
                if delay_s >= 0:
                    running.timers.append(self._later(delay_s, partial(event, attempt, fraction)))
        delay_s = attempt.offset_s(1.0, resumed=resumed)
        running.timers.append(self._later(delay_s, partial(self._finish, running)))

    def _print(self, attempt: Attempt, fraction: float) -> None:
        text = f"{attempt.id} at {fraction:g}"
        self.log.append(text)
        self._on_line(text)

    def _progress(self, attempt: Attempt, fraction: float) -> None:
        self._on_message(Progressed(attempt.id, done_units(fraction), UNITS, "steps"))

    def _checkpoint(self, attempt: Attempt, fraction: float) -> None:
        self._on_message(Checkpointed(attempt.id, attempt.id, done_units(fraction)))

    def _finish(self, running: _Running) -> None:
        attempt = running.attempt
        if attempt.kernel_oom:
            self._world.oom_kills += 1
        if attempt.failure == "crash":
            self.exit(-9 if attempt.kernel_oom else 1)
        elif attempt.failure:
            self._end(running, _failure(attempt.failure))
        else:
            self._end(running, None)

    def _end(self, running: _Running, failure: FailureReport | None) -> None:
        running.clear()
        attempt = running.attempt
        del self._running[attempt.id]
        outputs = {}
        if failure is None and attempt.outputs != "missing":
            path = attempt.id if attempt.outputs == "store" else ""
            outputs = {"out": HostOutput("blob", path=path)}
        run_s = self._world.clock.now_s - running.began_s
        keeps = failure is None and attempt.keeps_files
        usage = HostUsage(run_s=run_s, units=UNITS)
        self._on_message(AttemptEnded(attempt.id, outputs, failure, usage, keeps))

    def _cancel(self, attempt_id: str) -> None:
        running = self._running.get(attempt_id)
        if running is None or running.cancelled or running.attempt.cancel_s is None:
            return
        running.cancelled = True
        running.clear()
        end = partial(self._end, running, _failure("cancelled"))
        running.timers.append(self._later(running.attempt.cancel_s, end))

    def _stop(self, attempt_id: str) -> None:
        running = self._running.get(attempt_id)
        if running is None or running.stopping or running.cancelled:
            return
        if running.attempt.stop_s is not None:
            running.stopping = True
            stopped = partial(self._stopped, running)
            running.timers.append(self._later(running.attempt.stop_s, stopped))

    def _stopped(self, running: _Running) -> None:
        attempt = running.attempt
        if attempt.stop_checkpoint:
            began = attempt.resume_at if running.resumed else 0.0
            elapsed_s = self._world.clock.now_s - running.began_s
            self._checkpoint(attempt, began + elapsed_s / attempt.run_s)
        self._end(running, _failure("drained"))

    def _close(self) -> None:
        self._closing = True
        if any(one.attempt.cancel_s is None for one in self._running.values()):
            return
        for running in self._running.values():
            running.clear()
        self._later(self._world.signatures[self.signature].close_s, partial(self.exit, 0))


class _Blobs:
    """In place of the caching store: only the attempts' own inputs are in it."""

    def __init__(self, world: World) -> None:
        self._world = world

    @asynccontextmanager
    async def pinned(self, digest: Digest) -> Any:
        attempt = self._world.attempts[digest]
        await asyncio.sleep(attempt.fetch_s or 0.0)
        if attempt.fetch_failure:
            raise _error(attempt.fetch_failure, digest)
        yield Path("/none")


class _Inputs(Inputs):
    """Fetches as it is; what it fetches comes from the scenario."""

    def __init__(self, world: World, *parts: Any) -> None:
        super().__init__(*parts)
        self._world = world

    async def misfit(self, assignment: Assignment) -> FailureReport | None:
        kind = self._world.attempts[assignment.attempt_id].preflight_failure
        return _failure(kind) if kind else None

    async def fetch(self, assignment: Assignment, pins: AsyncExitStack) -> dict[str, HostInput]:
        self._world.add(EffectKind.FETCH, assignment.attempt_id)
        try:
            return await super().fetch(assignment, pins)
        except asyncio.CancelledError:
            self._world.add(EffectKind.FETCH_CANCELLED, assignment.attempt_id)
            raise


class _Outputs(Outputs):
    """Outputs whose path is their attempt's id."""

    world: World

    @staticmethod
    def inline(outputs: dict[str, HostOutput]) -> Any:
        return None if outputs["out"].path else ({}, {})

    async def store(self, outputs: dict[str, HostOutput], contract: Any) -> Any:
        attempt = self.world.attempts[outputs["out"].path]
        self.world.add(EffectKind.STORE, attempt.id)
        try:
            await asyncio.sleep(attempt.store_s)
        except asyncio.CancelledError:
            self.world.add(EffectKind.STORE_CANCELLED, attempt.id)
            raise
        if self.world.ran_in[attempt.id].exited.is_set():
            raise FileNotFoundError("the host's files are not there any more")
        if attempt.store_failure:
            raise _error(attempt.store_failure, attempt.id)
        return {}, {}


@dataclass
class _Storing:
    task: "asyncio.Task[None] | None" = None
    waiting: float | None = None


class _Checkpoints:
    """Stores one checkpoint of an attempt at a time; a newer one replaces the one that waits."""

    def __init__(self, world: World, blobs: Any, directory: Path, held: ReportBuffer) -> None:
        self._world, self._held = world, held
        self._storing: dict[str, _Storing] = {}

    def take(self, attempt_id: str, path: str, done: float) -> None:
        storing = self._storing.setdefault(attempt_id, _Storing())
        storing.waiting = done
        if storing.task is None:
            storing.task = asyncio.get_running_loop().create_task(self._store(attempt_id, storing))

    async def settled(self, attempt_id: str) -> None:
        storing = self._storing.get(attempt_id)
        if storing is not None and storing.task is not None:
            await asyncio.wait([storing.task])

    def forget(self, attempt_id: str) -> None:
        storing = self._storing.pop(attempt_id, None)
        if storing is not None:
            storing.waiting = None
            if storing.task is not None:
                storing.task.cancel()

    async def fetch(self, assignment: Assignment, pins: AsyncExitStack) -> HostInput | None:
        if assignment.resume is None:
            return None
        attempt = self._world.attempts[assignment.attempt_id]
        digest = assignment.resume.artifact.digest
        self._world.add(EffectKind.FETCH_CHECKPOINT, attempt.id)
        await asyncio.sleep(attempt.resume_s or 0.0)
        if attempt.resume_spoiled:
            self._held.checkpoint(Checkpoint(attempt.id, digest, spoiled=(digest,)))
            return None
        return HostInput("tree", digest)

    async def _store(self, attempt_id: str, storing: _Storing) -> None:
        attempt = self._world.attempts[attempt_id]
        while storing.waiting is not None:
            done, storing.waiting = storing.waiting, None
            self._world.add(EffectKind.STORE_CHECKPOINT, attempt_id, done)
            await asyncio.sleep(attempt.checkpoint_store_s)
            if not attempt.checkpoint_store_fails:
                self._held.checkpoint(Checkpoint(attempt_id, Digest(f"{attempt_id}@{done}"), done))
        storing.task = None


class _Connection:
    """In place of ``GatewayConnection``; what is there to be sent goes at the end of an instant."""

    def __init__(
        self, world: World, url: str, held: ReportBuffer, worker: Agent, hello: Any, *_: Any
    ) -> None:
        self._world, self._held, self._worker, self._hello = world, held, worker, hello
        self.connected = False
        self._closing = False
        self._goodbye = asyncio.Event()
        self._orphaned = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._is_due = False
        self._seq = 0
        self._last = Message()
        world.connection = self

    async def run(self) -> None:
        await self._orphaned.wait()
        raise OrphanedError("no control plane")

    async def close(self, within_s: float) -> None:
        self._closing = True
        self._held.news.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._goodbye.wait(), within_s)

    def orphan(self) -> None:
        self._orphaned.set()

    def connect(self) -> None:
        hello: Hello = self._hello(0)
        message = Message(
            progress=_progress(hello.held),
            ended=_ids(hello.ended),
            checkpoints=_checkpoints(hello.checkpoints),
            instances=_instances(hello.lanes),
            components=_components(hello.components),
            draining=hello.draining,
        )
        self._last = message
        self._report(EffectKind.HELLO, message)
        self._held.said_everything()
        self.connected = True
        self._beats = 0
        self._beat_later()

    def disconnect(self) -> None:
        self.connected = False
        if self._timer is not None:
            self._timer.cancel()

    def follow(self, desired: Desired) -> None:
        if self.connected:
            self._worker.follow(desired)

    def end_instant(self) -> bool:
        """Sends what there is; whether it has."""
        if not self.connected or not (self._is_due or self._held.news.is_set()):
            return False
        self._is_due = False
        self._seq += 1
        sync = self._held.next_sync(self._seq, self._worker)
        if self._closing:
            self.disconnect()
            self._goodbye.set()
        self._sent(sync)
        return True

    def _sent(self, sync: Sync) -> None:
        last = self._last
        instances = last.instances if sync.lanes is None else _instances(sync.lanes)
        components = last.components if sync.components is None else _components(sync.components)
        self._last = Message(instances=instances, components=components, draining=sync.draining)
        message = Message(
            progress=_progress(sync.progress),
            ended=_ids(sync.ended),
            checkpoints=_checkpoints(sync.checkpoints),
            instances_changed=sync.lanes is not None,
            instances=None if instances == last.instances else instances,
            components_changed=sync.components is not None,
            components=None if components == last.components else components,
            logs=tuple((line.attempt_id, line.text) for line in sync.logs),
            draining=sync.draining,
            goodbye=self._closing,
        )
        if message != Message(draining=last.draining):
            self._report(EffectKind.SYNC, message)

    def _report(self, kind: EffectKind, message: Message) -> None:
        self._world.add(kind, message)
        after_s = self._world.scenario.acknowledge_after_s
        if message.ended and after_s is not None:
            ended = Desired(epoch=1, seq=1, acknowledged=message.ended)
            asyncio.get_running_loop().call_later(after_s, self.follow, ended)

    def _beat_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SYNC_S, self._beat)

    def _beat(self) -> None:
        self._is_due = True
        self._beats += 1
        if self._beats % _ENDS_AGAIN_BEATS == 0:
            self._held.say_ends_again()
        self._beat_later()


def _ids(ends: Collection[AttemptEnd]) -> tuple[str, ...]:
    return tuple(sorted(end.attempt_id for end in ends))


def _progress(reports: Collection[AttemptProgress]) -> dict[str, tuple[str, float]]:
    return {p.attempt_id: (p.phase, p.done) for p in _by_attempt(reports)}


def _checkpoints(reports: Collection[Checkpoint]) -> dict[str, float]:
    return {c.attempt_id: -1.0 if c.spoiled else c.done for c in _by_attempt(reports)}


def _by_attempt(reports: Collection[Any]) -> list[Any]:
    return sorted(reports, key=lambda report: report.attempt_id)


def _components(states: Collection[Component]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((c.digest, c.tier) for c in states))


def _instances(
    states: Collection[EngineInstanceState],
) -> tuple[tuple[str, str, int, int, float], ...]:
    return tuple(
        sorted((s.signature, s.state, s.capacity, s.memory_mib, seconds(s.load_s)) for s in states)
    )


async def _forever(*_: Any) -> None:
    await asyncio.Event().wait()


@contextmanager
def _patched(world: World) -> Iterator[None]:
    """Puts the world in place of what the agent would touch, and listens to what it decides."""
    clock = world.clock
    new_lane, begin = EngineInstances._new_lane, StandbyHosts._begin
    end = ReportBuffer.end

    def observed_new_lane(self: Any, key: str, wanted: Any, *rest: Any) -> Any:
        lane = new_lane(self, key, wanted, *rest)
        if lane is not None:
            host: Any = lane.process
            host.key, host.signature = key, wanted.signature
            reserved = lane.reservation
            world.add(
                EffectKind.HOST_START,
                key,
                wanted.signature,
                reserved.memory_mib,
                reserved.devices,
                host.preload,
            )
        return lane

    def observed_begin(self: Any, preparation: HostPreload) -> None:
        begin(self, preparation)
        if preparation in self._hosts:
            host = self._hosts[preparation].process
            host.preload, host.is_standby = preparation.name, True
            world.add(EffectKind.STANDBY_START, preparation.name)

    def observed_end(self: Any, ended: AttemptEnd) -> None:
        used = ended.usage
        spent = (used.fetch_s, used.load_s, used.run_s, used.put_s)
        world.add(
            EffectKind.END,
            ended.attempt_id,
            ended.failure.kind if ended.failure else "completed",
            *map(seconds, spent),
            used.resumed,
            ended.log.splitlines(),
        )
        end(self, ended)

    async def fetch_tree(blobs: Any, digest: Digest, path: Path) -> Any:
        component = world.components[digest]
        world.add(EffectKind.FETCH_COMPONENT, digest)
        try:
            await asyncio.sleep(component.fetch_s)
        except asyncio.CancelledError:
            world.add(EffectKind.FETCH_COMPONENT_CANCELLED, digest)
            raise
        if component.failure:
            raise _error(component.failure, digest)
        os.mkdir(path)
        return SimpleNamespace(size_bytes=1)

    _Outputs.world = world
    kills = SimpleNamespace(count=lambda: world.oom_kills)
    with ExitStack() as stack:
        for module, name, new in (
            (time, "monotonic", lambda: clock.now_s),
            (time, "perf_counter", lambda: clock.now_s),
            (time, "time", lambda: _EPOCH_S + clock.now_s),
            (instance_module, "HostProcess", partial(_Host, world)),
            (standby_module, "HostProcess", partial(_Host, world)),
            (instances_module, "OomKills", lambda: kills),
            (components_module, "fetch_tree", fetch_tree),
            (agent_module, "CachingBlobs", lambda *_, **__: _Blobs(world)),
            (agent_module, "Inputs", partial(_Inputs, world)),
            (agent_module, "Outputs", _Outputs),
            (attempts_module, "Outputs", _Outputs),
            (agent_module, "Checkpoints", partial(_Checkpoints, world)),
            (agent_module, "GatewayConnection", partial(_Connection, world)),
            (agent_module, "watch_memory", _forever),
            (agent_module, "watch_heartbeats", _forever),
            (EngineInstances, "_new_lane", observed_new_lane),
            (StandbyHosts, "_begin", observed_begin),
            (ReportBuffer, "end", observed_end),
        ):
            stack.enter_context(patch.object(module, name, new))
        yield


def _agent(world: World, folder: Path) -> Agent:
    scenario = world.scenario
    trees = folder / "trees"
    for component in scenario.components:
        if component.on_disk:
            (trees / component.digest).mkdir(parents=True)
    settings = WorkerSettings(
        gateway="ws://none",
        store="none",
        name="worker",
        cache_dir=folder,
        memory_mib=scenario.memory_mib,
        grace_s=scenario.grace_s,
    )
    shape = WorkerShape("worker", "local", "cpu", 0, 0, 1, 0, {})
    devices = Devices("gpu", scenario.devices, scenario.device_mib) if scenario.devices else None
    blobs: Any = None
    return Agent(settings, shape, _Engines(scenario), blobs, devices=devices)


async def _drive(world: World, agent: Agent) -> None:
    """Gives the agent its inputs at their times, until it has left or the scenario ends."""
    loop = asyncio.get_running_loop()
    work = loop.create_task(agent.run())
    work.add_done_callback(lambda _: world.add(EffectKind.LEAVE))
    await asyncio.sleep(0)
    calls: dict[type, Callable[[Any], None]] = {
        Connect: lambda _: world.connection.connect(),
        Disconnect: lambda _: world.connection.disconnect(),
        Orphan: lambda _: world.connection.orphan(),
        Sigterm: lambda _: agent.stop(),
        Send: lambda one: world.connection.follow(_desired(world, one)),
        Fault: lambda one: _fault(world, agent, one),
    }

    def give(inputs: list[Input]) -> None:
        for one in inputs:
            calls[type(one)](one)

    for t, group in itertools.groupby(world.scenario.inputs, key=lambda one: one.t):
        loop.call_at(_BEGIN_S + t, give, list(group))
    await asyncio.wait([work], timeout=world.scenario.until_s)
    world.recording = False
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


def _desired(world: World, one: Send) -> Desired:
    listed = one.hold_open
    return Desired(
        epoch=1,
        seq=1,
        assign=tuple(map(world.assignment, one.assign)),
        cancel=one.cancel,
        acknowledged=one.acknowledged,
        everything=one.everything,
        keep=one.keep,
        drain=one.drain,
        hold_open=None if listed is None else tuple(map(world.prewarm, listed)),
    )


def _fault(world: World, agent: Agent, fault: Fault) -> None:
    if fault.kind == "standby-crash":
        for host in world.hosts:
            if host.is_standby and host.preload == fault.key and host.started:
                host.exit(1)
        return
    for lane in agent._lanes:
        host_of: Any = lane.process
        if host_of.key != fault.key or not host_of.started or lane.gone:
            continue
        match fault.kind:
            case "crash":
                host_of.exit(1)
            case "oom-kill":
                world.oom_kills += 1
                host_of.exit(-9)
            case "memory":
                lane.end(FailureReport(FailureKind.OUT_OF_MEMORY.value, "more than it reserved"))
            case "silence":
                lane.end(FailureReport(FailureKind.HOST_CRASHED.value, "no heartbeat"))


def record_old(scenario: Scenario) -> list[Effect]:
    """Returns what the agent does in a scenario."""
    clock = _Clock()
    world = World(scenario, clock)
    with _patched(world), tempfile.TemporaryDirectory() as folder:
        selector = _Selector(clock)
        loop = asyncio.SelectorEventLoop(selector)
        asyncio.set_event_loop(loop)
        problems: list[Any] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        try:

            async def run() -> None:
                agent = _agent(world, Path(folder))
                selector.end_instant = partial(world.end_instant, agent)
                await _drive(world, agent)

            loop.run_until_complete(run())
            _finish_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
    if problems:
        raise RuntimeError(f"{scenario.name}: {problems}")
    return ordered(world.effects)


def _finish_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        rest: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
        loop.run_until_complete(rest)


def main() -> None:
    """Records all scenarios."""
    logging.disable(logging.CRITICAL)
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "worker"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.strip()
    about = f"Effects of flowmesh_worker.agent and flowmesh_worker.instances as of commit {commit}"
    OLD.mkdir(exist_ok=True)
    for path in OLD.glob("*.json"):
        path.unlink()
    for scenario in all_scenarios():
        effects = record_old(scenario)
        path = write_recording(Recording(about, scenario, effects))
        sys.stdout.write(f"{path.name}: {len(effects)} effects\n")


if __name__ == "__main__":
    main()
