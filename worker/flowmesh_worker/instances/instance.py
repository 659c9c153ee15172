"""A lane: one engine host, the attempts it runs and those that wait for a place in it."""

import asyncio
import heapq
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import EngineInstanceState, FailureReport
from flowmesh_core.units import Digest
from flowmesh_worker.instances.host_process import HostProcess
from flowmesh_worker.instances.job import AttemptJob, JobOutcome
from flowmesh_worker.instances.memory_budget import Reservation
from flowmesh_worker.instances.oom import OomKills
from flowmesh_worker.ipc.frames import (
    AttemptEnded,
    Cancel,
    Checkpointed,
    FromHost,
    Loaded,
    LoadFailed,
    Progressed,
    Release,
    Start,
    Stop,
)

CLOSE_WITHIN_S = 10.0
STOP_WITHIN_S = 5.0
"""How long an engine may take to stop an attempt before its host is ended."""

SILENCE_SHOWN_FROM_S = 15.0
"""From here on the control plane is told how long a host has not beaten."""

LISTENERS_MAX = 4
"""Beyond so many attempts at once, lines are not sent while they run."""


class EngineInstance:
    """One host. It is ``starting``, ``loading``, ``ready``, then ``closing``, and gone at exit.

    Attributes:
        served: whether an attempt ever ran in it.
        failure: why its host is gone, where nobody closed it.
    """

    def __init__(
        self,
        start: Start,
        signature: Digest,
        reservation: Reservation,
        scratch: Path,
        oom_kills: OomKills,
        on_change: Callable[["EngineInstance"], None],
        place_again: Callable[[AttemptJob], None],
        prepared: HostProcess | None = None,
    ) -> None:
        """Takes what the host loads.

        Args:
            start: the host's first message.
            signature: what its attempts share.
            reservation: the memory and devices it owns.
            scratch: where it writes.
            oom_kills: counts what the kernel kills.
            on_change: told when the lane is loading, ready, idle, closing or gone.
            place_again: takes the jobs that a host which had loaded leaves behind unstarted.
            prepared: a running host that waits to be told what to load; None: one is started.
        """
        self.signature = signature
        self.engine = start.engine
        self.reservation = reservation
        self.scratch = scratch
        self.components = start.components
        self.isolated_for = ""
        self.state = "starting"
        self.capacity = 1
        self.load_s = 0.0
        self.last_used_s = time.monotonic()
        self.gone = False
        self.served = False
        self.failure: FailureReport | None = None
        self.running: dict[str, AttemptJob] = {}
        self._kept: set[str] = set()
        self._start_message = start
        self._libraries: Mapping[str, str] = {}
        self._queue: list[tuple[int, int, AttemptJob]] = []
        self._oom_kills = oom_kills
        self._oom_before = oom_kills.count()
        self._on_change = on_change
        self._place_again = place_again
        self._loaded_once = False
        self._ending: FailureReport | None = None
        self._lines_seen = 0
        self._lines_ended = 0
        self._closing: asyncio.Task[None] | None = None
        if prepared is None:
            self.process = HostProcess(self._receive, self._line, self._exited)
        else:
            self.process = prepared
            prepared.hand_over(self._receive, self._line, self._exited)

    @property
    def idle(self) -> bool:
        """Whether it holds nothing, outputs that are being stored included, and could be closed."""
        busy = self.running or self._kept or self._waiting()
        return self.state == "ready" and not busy

    def _waiting(self) -> bool:
        return any(not job.abandoned for _, _, job in self._queue)

    @property
    def queue_length(self) -> int:
        """How many wait."""
        return sum(not job.abandoned for _, _, job in self._queue)

    def report(self) -> EngineInstanceState:
        """What the control plane is told."""
        silent_s = self.process.silent_s
        return EngineInstanceState(
            signature=self.signature,
            engine=self.engine,
            state=self.state,
            capacity=self.capacity,
            memory_mib=self.reservation.memory_mib,
            load_s=self.load_s,
            silent_s=silent_s if silent_s > SILENCE_SHOWN_FROM_S else 0.0,
        )

    async def open(self, environment: Mapping[str, str]) -> None:
        """Starts the host, unless it runs, and has it load."""
        try:
            await self.process.start(environment)
        except OSError as error:
            self._ending = FailureReport(
                FailureKind.HOST_CRASHED.value, f"the host of {self.engine} did not start: {error}"
            )
            self._exited(1)
            return
        if self.state == "starting":
            self.state = "loading"
        self.process.send(self._start_message)
        self._on_change(self)

    def submit(self, job: AttemptJob) -> None:
        """Takes a job: runs it as soon as there is a place."""
        job.lane = self
        job.log_from = self._lines_seen
        self.last_used_s = time.monotonic()
        job.on_phase("queued" if self.state == "ready" else "loading")
        heapq.heappush(self._queue, (-job.assignment.priority, job.serial, job))
        self._pump()

    def abandon(self, job: AttemptJob) -> None:
        """Stops a job that nobody waits for; ends the host if the engine does not obey."""
        if job.abandoned:
            return
        job.abandoned = True
        attempt_id = job.assignment.attempt_id
        if attempt_id in self.running:
            self.process.send(Cancel(attempt_id))
            asyncio.get_running_loop().call_later(STOP_WITHIN_S, self._insist, attempt_id)
        elif attempt_id in self._kept:
            self.release_files(attempt_id)
        elif not self._waiting():
            self._on_change(self)

    def stop(self, job: AttemptJob) -> None:
        """Asks a running job to hand over a checkpoint and itself back."""
        if job.assignment.attempt_id in self.running:
            self.process.send(Stop(job.assignment.attempt_id))

    def release_files(self, attempt_id: str) -> None:
        """The outputs of an attempt are stored; the host may remove them, and itself close."""
        if attempt_id not in self._kept:
            return
        self._kept.discard(attempt_id)
        self.process.send(Release(attempt_id))
        if not self.running:
            self._on_change(self)

    def end(self, failure: FailureReport) -> None:
        """Ends the host at once; all that it holds fails with this failure."""
        self._ending = self._ending or failure
        self.process.kill()

    def close(self) -> None:
        """Closes the host in peace; it must be idle."""
        if self.state != "closing":
            self.state = "closing"
            self._closing = asyncio.get_running_loop().create_task(
                self.process.close(CLOSE_WITHIN_S)
            )
            self._on_change(self)

    def last_lines(self, since: int = 0) -> str:
        """The last lines that the host printed, not before a given count of lines."""
        new = min(self._lines_seen - since, len(self.process.log))
        return "\n".join(list(self.process.log)[-new:]) if new > 0 else ""

    def _insist(self, attempt_id: str) -> None:
        if attempt_id in self.running:
            self.end(
                FailureReport(
                    FailureKind.PREEMPTED.value,
                    f"the host of {self.engine} was ended because another attempt in it "
                    "did not stop",
                )
            )

    def _pump(self) -> None:
        while self.state == "ready" and self._queue and len(self.running) < self.capacity:
            job = heapq.heappop(self._queue)[2]
            if job.abandoned:
                continue
            if not self.running:  # what was printed while it waited is another tenant's
                job.log_from = max(job.log_from, self._lines_ended)
            job.sent_s = time.monotonic()
            self.running[job.assignment.attempt_id] = job
            self.served = True
            self.process.send(job.run)
            job.on_phase("running")

    def _receive(self, message: FromHost) -> None:
        match message:
            case AttemptEnded():
                self._job_ended(message)
            case Progressed():
                job = self.running.get(message.attempt_id)
                if job is not None:
                    job.on_progress(message.done, message.total, message.unit)
            case Checkpointed():
                job = self.running.get(message.attempt_id)
                if job is not None and not job.abandoned:
                    job.on_checkpoint(message.path, message.done)
            case Loaded():
                self._loaded(message)
            case LoadFailed():
                self._ending = self._kernel_killed(message.failure)

    def _loaded(self, message: Loaded) -> None:
        self.state = "ready"
        self._loaded_once = True
        self.capacity = message.capacity
        self.load_s = message.load_s
        self._libraries = message.libraries
        now = time.monotonic()
        for _, _, job in self._queue:
            job.load_s = now - job.queued_s
            job.on_phase("queued")
        self._pump()
        self._on_change(self)

    def _job_ended(self, message: AttemptEnded) -> None:
        job = self.running.pop(message.attempt_id, None)
        self.last_used_s = time.monotonic()
        if message.libraries is not None:
            self._libraries = message.libraries
        if message.keeps_files:
            self._kept.add(message.attempt_id)
        if job is not None and not job.outcome.done():
            failure = message.failure
            if failure is not None:
                failure = self._kernel_killed(failure)
            self._settle(job, message, failure)
        self._lines_ended = self._lines_seen
        if message.keeps_files and (job is None or job.abandoned):
            self.release_files(message.attempt_id)
        self._pump()
        if not self.running:
            self._on_change(self)

    def _settle(
        self, job: AttemptJob, ended: AttemptEnded | None, failure: FailureReport | None
    ) -> None:
        log = self.last_lines(job.log_from)
        job.outcome.set_result(JobOutcome(ended, failure, log, self._libraries))

    def _kernel_killed(self, failure: FailureReport) -> FailureReport:
        """An engine's failure, or out-of-memory where the kernel killed one of its processes."""
        count = self._oom_kills.count()
        if failure.kind != FailureKind.ENGINE.value or count <= self._oom_before:
            return failure
        self._oom_before = count
        return self._out_of_memory(failure.detail)

    def _out_of_memory(self, detail: str) -> FailureReport:
        return FailureReport(
            FailureKind.OUT_OF_MEMORY.value,
            f"the kernel killed a process of {self.engine} for want of memory",
            "ask for more with resources.memory, or give it less at once",
            detail=detail,
        )

    def _line(self, text: str) -> None:
        self._lines_seen += 1
        hearing = list(self.running.values()) or [job for _, _, job in self._queue]
        # Nobody can tell whose line it is among many; they get the last ones with their end.
        if len(hearing) <= LISTENERS_MAX:
            for job in hearing:
                job.on_line(text)

    def _exited(self, code: int) -> None:
        self.gone = True
        self.state = "closing"
        failure = self._ending or self._crash(code)
        if self._closing is None:
            self.failure = failure
        failed = list(self.running.values())
        unstarted = [job for _, _, job in sorted(self._queue) if not job.abandoned]
        self.running, self._queue = {}, []
        self._kept.clear()
        if not self._loaded_once:
            failed, unstarted = [*failed, *unstarted], []
        for job in failed:
            if not job.outcome.done():
                self._settle(job, None, failure)
        self._on_change(self)
        for job in unstarted:
            self._place_again(job)

    def _crash(self, code: int) -> FailureReport:
        detail = self.last_lines()
        if code == -signal.SIGKILL and self._oom_kills.count() > self._oom_before:
            return self._out_of_memory(detail)
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        return FailureReport(
            FailureKind.HOST_CRASHED.value, f"the host of {self.engine} {how}", detail=detail
        )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
