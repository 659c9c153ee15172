"""A host process with the physics of a scenario: how long it takes, and what goes wrong."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tests.golden.agent.format import Attempt, EffectKind
from tests.golden.agent.virtual.timeline import Call
from tests.golden.agent.virtual.world import World, failure

from flowmesh_core.protocol.messages import FailureReport

KILLED = -9
"""The exit code of a process that got SIGKILL."""


class HostOwner(Protocol):
    """What has started a host, or has taken it over."""

    def started(self, host: "Host") -> None:
        """Its process runs."""

    def not_started(self, host: "Host") -> None:
        """Its process could not be started."""

    def exited(self, host: "Host", code: int) -> None:
        """Its process has ended."""


class EngineOwner(HostOwner, Protocol):
    """One that has it load an engine and run attempts."""

    def loaded(self, host: "Host", failed: FailureReport | None) -> None:
        """Its engine is loaded, or could not be."""

    def printed(self, host: "Host", line: str) -> None:
        """It has printed a line."""

    def progressed(self, host: "Host", attempt_id: str, fraction: float) -> None:
        """An attempt is so far."""

    def checkpointed(self, host: "Host", attempt_id: str, fraction: float) -> None:
        """An attempt hands over a checkpoint."""

    def ended(
        self, host: "Host", attempt: Attempt, run_s: float, failed: FailureReport | None
    ) -> None:
        """An attempt has ended."""


class StandbyOwner(HostOwner, Protocol):
    """One that has it import libraries."""

    def prepared(self, host: "Host", *, failed: bool) -> None:
        """It has imported them, or cannot."""


@dataclass(eq=False)
class _Running:
    attempt: Attempt
    began_s: float
    resumed: bool
    calls: list[Call] = field(default_factory=list)
    cancelled: bool = False
    stopping: bool = False

    def clear(self) -> None:
        for call in self.calls:
            call.cancel()
        self.calls.clear()


class Host:
    """A host process, from before its start to its end.

    Attributes:
        key: of the instance; empty in a standby host.
        preload: what it imports before it knows what it will load; empty for none.
        standby: what has it import, until it is taken; None then.
        engine: what has it load and run; None before.
        on_gone: called once it has ended.
    """

    def __init__(self, world: World, *, signature: str = "", preload: str = "") -> None:
        self.key = ""
        self.signature = signature
        self.preload = preload
        self.standby: StandbyOwner | None = None
        self.engine: EngineOwner | None = None
        self.is_started = False
        self.is_gone = False
        self.on_gone: Callable[[], None] = lambda: None
        self._world = world
        self._killed = False
        self._closing = False
        self._busy_until_s = 0.0
        self._running: dict[str, _Running] = {}
        self._calls: list[Call] = []

    @property
    def _owner(self) -> HostOwner:
        owner = self.engine or self.standby
        assert owner is not None, "a host has an owner from its start"
        return owner

    def start(self) -> None:
        """Starts the process."""
        if self.preload:
            preload = self._world.preloads[self.preload]
            delay_s, fails = preload.start_s, preload.failure == "start"
        else:
            signature = self._world.signatures[self.signature]
            delay_s, fails = signature.start_s, signature.start_fails
        self._world.time.after(delay_s, partial(self._started, fails=fails))

    def load(self, signature: str) -> None:
        """Has it load an engine; its owner gets the result."""
        self.signature = signature
        if not self.is_gone:
            waits_s = max(0.0, self._busy_until_s - self._world.time.now_s)
            self._later(waits_s + self._world.signatures[signature].load_s, self._loaded)

    def run(self, attempt: Attempt, *, resumed: bool) -> None:
        """Has it run an attempt."""
        if self.is_gone:
            return
        self._world.add(EffectKind.RUN, self.key, attempt.id, resumed)
        running = _Running(attempt, self._world.time.now_s, resumed)
        self._running[attempt.id] = running
        for fractions, event in (
            (attempt.lines, self._print),
            (attempt.progress, self._progress),
            (attempt.checkpoints, self._checkpoint),
        ):
            for fraction in fractions:
                delay_s = attempt.offset_s(fraction, resumed=resumed)
                if delay_s >= 0:
                    running.calls.append(self._later(delay_s, partial(event, attempt, fraction)))
        delay_s = attempt.offset_s(1.0, resumed=resumed)
        running.calls.append(self._later(delay_s, partial(self._finish, running)))

    def cancel(self, attempt_id: str) -> None:
        """Asks it to end an attempt."""
        if self.is_gone:
            return
        self._world.add(EffectKind.CANCEL, self.key, attempt_id)
        running = self._running.get(attempt_id)
        if running is None or running.cancelled or running.attempt.cancel_s is None:
            return
        running.cancelled = True
        running.clear()
        end = partial(self._end, running, failure("cancelled"))
        running.calls.append(self._later(running.attempt.cancel_s, end))

    def stop(self, attempt_id: str) -> None:
        """Asks it to hand over a checkpoint of an attempt, and to end that."""
        if self.is_gone:
            return
        self._world.add(EffectKind.STOP, self.key, attempt_id)
        running = self._running.get(attempt_id)
        if running is None or running.stopping or running.cancelled:
            return
        if running.attempt.stop_s is not None:
            running.stopping = True
            stopped = partial(self._stopped, running)
            running.calls.append(self._later(running.attempt.stop_s, stopped))

    def release(self, attempt_id: str) -> None:
        """Lets it remove the files of an attempt."""
        if not self.is_gone:
            self._world.add(EffectKind.RELEASE, self.key, attempt_id)

    def close(self, within_s: float) -> None:
        """Asks it to exit, and kills it after so long."""
        if not self.is_started or self.is_gone:
            return
        self._world.time.after(within_s, self.kill)
        if self._closing:
            return
        self._world.add(EffectKind.HOST_CLOSE, self.key)
        self._closing = True
        if any(one.attempt.cancel_s is None for one in self._running.values()):
            return
        for running in self._running.values():
            running.clear()
        self._later(self._world.signatures[self.signature].close_s, partial(self.exit, 0))

    def kill(self) -> None:
        """Ends it at once."""
        if self.is_gone or self._killed:
            return
        if self.engine is None:
            self._world.add(EffectKind.STANDBY_STOP, self.preload)
        else:
            self._world.add(EffectKind.HOST_KILL, self.key)
        self._killed = True
        if self.is_started:
            self._world.time.soon(partial(self.exit, KILLED))

    def exit(self, code: int) -> None:
        """It ends."""
        if self.is_gone:
            return
        self.is_gone = True
        for running in self._running.values():
            running.clear()
        for call in self._calls:
            call.cancel()
        self._owner.exited(self, code)
        self.on_gone()

    def _started(self, *, fails: bool) -> None:
        if fails:
            self.is_gone = True
            self._owner.not_started(self)
            self.on_gone()
            return
        self.is_started = True
        if self._killed:
            self._world.time.soon(partial(self.exit, KILLED))
        if self.preload:
            import_s = self._world.preloads[self.preload].import_s
            self._busy_until_s = self._world.time.now_s + import_s
            self._later(import_s, self._imported)
        self._owner.started(self)

    def _later(self, delay_s: float, make: Callable[[], None]) -> Call:
        call = self._world.time.after(delay_s, make)
        self._calls.append(call)
        return call

    def _imported(self) -> None:
        how = self._world.preloads[self.preload].failure
        if how == "exit":
            self.exit(1)
        elif self.standby is not None:
            self.standby.prepared(self, failed=how == "import")

    def _loaded(self) -> None:
        if self._closing or self.engine is None:
            return
        kind = self._world.signatures[self.signature].load_failure
        if kind == "crash":
            self.exit(1)
        elif kind:
            self.engine.loaded(self, failure(kind))
            self._world.time.soon(partial(self.exit, 1))
        else:
            self.engine.loaded(self, None)

    def _print(self, attempt: Attempt, fraction: float) -> None:
        assert self.engine is not None
        self.engine.printed(self, f"{attempt.id} at {fraction:g}")

    def _progress(self, attempt: Attempt, fraction: float) -> None:
        assert self.engine is not None
        self.engine.progressed(self, attempt.id, fraction)

    def _checkpoint(self, attempt: Attempt, fraction: float) -> None:
        assert self.engine is not None
        self.engine.checkpointed(self, attempt.id, fraction)

    def _finish(self, running: _Running) -> None:
        attempt = running.attempt
        if attempt.kernel_oom:
            self._world.oom_kills += 1
        if attempt.failure == "crash":
            self.exit(KILLED if attempt.kernel_oom else 1)
        elif attempt.failure:
            self._end(running, failure(attempt.failure))
        else:
            self._end(running, None)

    def _end(self, running: _Running, failed: FailureReport | None) -> None:
        assert self.engine is not None
        running.clear()
        del self._running[running.attempt.id]
        run_s = self._world.time.now_s - running.began_s
        self.engine.ended(self, running.attempt, run_s, failed)

    def _stopped(self, running: _Running) -> None:
        attempt = running.attempt
        if attempt.stop_checkpoint:
            began = attempt.resume_at if running.resumed else 0.0
            elapsed_s = self._world.time.now_s - running.began_s
            self._checkpoint(attempt, began + elapsed_s / attempt.run_s)
        self._end(running, failure("drained"))
