"""The life of an attempt: fetch, wait for a lane, run, store, report. One task each.

Whatever happens to an attempt ends in an ``AttemptEnd``; nothing an attempt does ends the agent.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    FailureReport,
    LogLine,
)
from flowmesh_core.protocol.results import Usage
from flowmesh_core.units import Digest
from flowmesh_worker.agent.checkpoints import Checkpoints
from flowmesh_worker.agent.progress_rate import ProgressRate
from flowmesh_worker.agent.report_buffer import ReportBuffer, figure
from flowmesh_worker.data.column_check import missing_column_failure
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.outputs import Outputs, Stored, missing_output_failure
from flowmesh_worker.energy import EnergyShares
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.failures import store_failure
from flowmesh_worker.instances.assignment_checks import refused
from flowmesh_worker.instances.instances import EngineInstances
from flowmesh_worker.instances.job import AttemptJob, JobOutcome
from flowmesh_worker.ipc.frames import AttemptEnded, HostInput, HostUsage, RunAttempt
from flowmesh_worker.log_format import attempt_fields

_LOG_CHARS_MAX = 8192
_RESUMED = frozenset(k.value for k in FailureKind if Failure(k, "").retryable)
"""Kinds of failure after which the action is tried again."""
_QUIET = frozenset({FailureKind.CANCELLED, FailureKind.DRAINED})
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attempt:
    assignment: Assignment
    task: "asyncio.Task[None] | None" = None
    phase: str = "fetching"
    job: AttemptJob | None = None
    started_s: float = field(default_factory=time.time)
    fetch_s: float = 0.0
    put_s: float = 0.0
    timer: asyncio.TimerHandle | None = None
    pace: ProgressRate = field(default_factory=ProgressRate)
    resumed: bool = False


class HeldAttempts:
    """All attempts that this worker works on."""

    def __init__(
        self,
        held: ReportBuffer,
        engines: Engines,
        inputs: Inputs,
        lanes: EngineInstances,
        outputs: Outputs,
        energy: EnergyShares,
        checkpoints: Checkpoints,
        moved: Callable[[], None],
    ) -> None:
        """Takes the parts that an attempt passes through, and who is told of every move."""
        self._held = held
        self._engines = engines
        self._inputs = inputs
        self._lanes = lanes
        self._outputs = outputs
        self._energy = energy
        self._checkpoints = checkpoints
        self._moved = moved
        self._attempts: dict[str, _Attempt] = {}
        self.none_left = asyncio.Event()
        self.none_left.set()
        self.counts: dict[str, int] = {}

    def __contains__(self, attempt_id: str) -> bool:
        """Whether it is being worked on."""
        return attempt_id in self._attempts

    @property
    def fetching(self) -> frozenset[Digest]:
        """Signatures of those that still fetch what they need."""
        attempts = self._attempts.values()
        return frozenset(a.assignment.signature for a in attempts if a.phase == "fetching")

    def ids(self) -> list[str]:
        """What is being worked on."""
        return list(self._attempts)

    def start(self, assignment: Assignment) -> None:
        """Takes an attempt up; one that is known already is left alone."""
        if self._held.knows(assignment.attempt_id):
            return
        attempt = _Attempt(assignment)
        self._attempts[assignment.attempt_id] = attempt
        self.none_left.clear()
        self._held.take(assignment.attempt_id)
        refusal = refused(self._engines, assignment, draining=self._held.draining)
        if refusal is not None:
            self._end(attempt, failure=refusal)
            return
        attempt.task = asyncio.get_running_loop().create_task(self._live(attempt))

    def stop(self, attempt_id: str, kind: FailureKind, message: str, remedy: str = "") -> None:
        """Stops an attempt, which ends with this kind; harmless for an unknown one."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None or attempt.task is None:
            return
        # Ended here, not in its task: one that was never run would not hear of being cancelled.
        if attempt.job is not None:
            self._lanes.abandon(attempt.job)
        self._end(attempt, failure=FailureReport(kind.value, message, remedy))
        attempt.task.cancel()

    def hand_back(self, *, running: bool) -> None:
        """Ends attempts with kind ``drained``: those that do not run yet, or all."""
        for attempt_id, attempt in list(self._attempts.items()):
            if running or attempt.phase not in ("running", "storing"):
                self.stop(attempt_id, FailureKind.DRAINED, "the worker was told to stop")

    def wind_down(self, *, within_s: float) -> None:
        """Asks running attempts for a checkpoint and themselves, unless they end by then anyway."""
        for attempt in self._attempts.values():
            job = attempt.job
            if job is None or job.lane is None or attempt.phase != "running":
                continue
            if attempt.pace.remaining_s(time.monotonic()) > within_s:
                job.lane.stop(job)

    async def _live(self, attempt: _Attempt) -> None:
        # The stack of pins is closed last, when nothing reads the inputs any more.
        async with AsyncExitStack() as pins:
            try:
                await self._through(attempt, pins)
            except Exception as error:
                self._end(attempt, failure=store_failure(error, "the attempt"))

    async def _through(self, attempt: _Attempt, pins: AsyncExitStack) -> None:
        self._lanes.prepared.asked(attempt.assignment)
        inputs = Inputs.inline_inputs(attempt.assignment)
        if inputs is None:
            began = time.perf_counter()
            self._phase(attempt, "fetching")
            refusal = await self._inputs.misfit(attempt.assignment)
            if refusal is not None:
                self._end(attempt, failure=refusal)
                return
            try:
                inputs = await self._inputs.fetch(attempt.assignment, pins)
            except Exception as error:
                self._end(attempt, failure=store_failure(error, "an input could not be fetched"))
                return
            attempt.fetch_s = time.perf_counter() - began
        a = attempt.assignment
        refusal = missing_column_failure(self._engines.contract(a.engine), a.params, inputs)
        if refusal is not None:
            self._end(attempt, failure=refusal)
            return
        resume = await self._checkpoints.fetch(a, pins)
        outcome = await self._run(attempt, inputs, resume)
        if outcome.failure is not None or outcome.ended is None:
            if outcome.failure is not None and outcome.failure.kind in _RESUMED:
                # The next attempt is to begin at the newest one.
                if attempt.timer is not None:
                    attempt.timer.cancel()
                await self._checkpoints.settled(a.attempt_id)
            self._end(attempt, outcome=outcome, failure=outcome.failure)
            return
        failure = missing_output_failure(
            self._engines.contract(a.engine), a.params, outcome.ended.outputs
        )
        if failure is not None:
            self._end(attempt, outcome=outcome, failure=failure)
            self._release(attempt, outcome.ended)
            return
        await self._store(attempt, outcome, outcome.ended)

    async def _run(
        self, attempt: _Attempt, inputs: dict[str, HostInput], resume: HostInput | None
    ) -> JobOutcome:
        a = attempt.assignment
        attempt.resumed = resume is not None
        attempt.job = AttemptJob(
            assignment=a,
            run=RunAttempt(
                attempt_id=a.attempt_id,
                action_id=a.action_id,
                params=a.params,
                fields=a.fields,
                inputs=inputs,
                row_output=a.row_output,
                cache_salt=a.cache_salt,
                priority=a.priority,
                secrets=a.secrets,
                resume=resume,
            ),
            components=self._components(a, inputs),
            on_phase=lambda phase: self._phase(attempt, phase),
            on_progress=lambda done, total, unit: self._progress(attempt, done, total, unit),
            on_line=lambda text: self._held.log(LogLine(a.attempt_id, time.time(), text)),
            on_checkpoint=lambda path, done: self._checkpoints.take(a.attempt_id, path, done),
            outcome=asyncio.get_running_loop().create_future(),
        )
        self._lanes.submit(attempt.job)
        return await attempt.job.outcome

    def _components(self, a: Assignment, inputs: dict[str, HostInput]) -> dict[str, HostInput]:
        contract = self._engines.contract(a.engine)
        mixable = {p.name for p in contract.inputs if p.mixable} if contract else set()
        return {p: inputs[p] for p in a.components if p in inputs and p not in mixable}

    async def _store(self, attempt: _Attempt, outcome: JobOutcome, ended: AttemptEnded) -> None:
        stored = Outputs.inline(ended.outputs)
        try:
            if stored is None:
                began = time.perf_counter()
                self._phase(attempt, "storing")
                contract = self._engines.contract(attempt.assignment.engine)
                stored = await self._outputs.store(ended.outputs, contract)
                attempt.put_s = time.perf_counter() - began
        except Exception as error:
            failure = store_failure(error, "an output could not be stored")
            lane = attempt.job.lane if attempt.job is not None else None
            if lane is not None and lane.gone:
                # The host's files went with it: that is no fault of this attempt or of the store.
                failure = FailureReport(
                    FailureKind.PREEMPTED.value, "its host ended before its output was stored"
                )
            self._end(attempt, outcome=outcome, failure=failure)
        else:
            self._end(attempt, outcome=outcome, stored=stored)
        finally:
            self._release(attempt, ended)

    @staticmethod
    def _release(attempt: _Attempt, ended: AttemptEnded) -> None:
        if ended.keeps_files and attempt.job is not None and attempt.job.lane is not None:
            attempt.job.lane.release_files(attempt.assignment.attempt_id)

    def _phase(self, attempt: _Attempt, phase: str) -> None:
        attempt.phase = phase
        attempt_id = attempt.assignment.attempt_id
        if phase == "running":
            self._energy.begin(attempt_id)
            timeout_s = attempt.assignment.timeout_s
            if timeout_s > 0:
                attempt.timer = asyncio.get_running_loop().call_later(
                    timeout_s,
                    self.stop,
                    attempt_id,
                    FailureKind.TIMEOUT,
                    f"the attempt ran longer than its {timeout_s:g} s",
                    "raise the step's timeout, or give the step less to do",
                )
        self._held.report(AttemptProgress(attempt_id, phase))
        self._moved()

    def _progress(self, attempt: _Attempt, done: float, total: float, unit: str) -> None:
        done, total = figure(done), figure(total)
        attempt.pace.seen(time.monotonic(), done, total)
        self._held.report(
            AttemptProgress(attempt.assignment.attempt_id, "running", int(done), done, total, unit)
        )

    def _end(
        self,
        attempt: _Attempt,
        *,
        outcome: JobOutcome | None = None,
        stored: Stored | None = None,
        failure: FailureReport | None = None,
    ) -> None:
        a = attempt.assignment
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._attempts.pop(a.attempt_id, None) is None:
            return
        self._checkpoints.forget(a.attempt_id)
        artifacts, inline = stored or ({}, {})
        end = AttemptEnd(
            attempt_id=a.attempt_id,
            action_id=a.action_id,
            outputs=artifacts,
            inline=inline,
            failure=failure,
            usage=self._usage(attempt, outcome),
            libraries=dict(outcome.libraries) if outcome else {},
            started_s=attempt.started_s,
            ended_s=time.time(),
            log=(outcome.log if outcome else self._last_lines(attempt))[-_LOG_CHARS_MAX:],
        )
        kind = failure.kind if failure else "completed"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._held.end(end)
        if failure is not None and failure.kind not in _QUIET:
            _log.warning(
                "%s failed: %s: %s", a.engine, kind, failure.message, extra=attempt_fields(a)
            )
        if not self._attempts:
            self.none_left.set()
        self._moved()

    @staticmethod
    def _last_lines(attempt: _Attempt) -> str:
        job = attempt.job
        return job.lane.last_lines(job.log_from) if job is not None and job.lane else ""

    def _usage(self, attempt: _Attempt, outcome: JobOutcome | None) -> Usage:
        job = attempt.job
        used = outcome.ended.usage if outcome and outcome.ended else HostUsage()
        joules = self._energy.end(attempt.assignment.attempt_id)
        run_s = used.run_s
        if not run_s and job is not None and job.sent_s:
            run_s = time.monotonic() - job.sent_s
        return Usage(
            units=used.units,
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            load_s=job.load_s if job else 0.0,
            run_s=run_s,
            fetch_s=attempt.fetch_s,
            put_s=attempt.put_s,
            joules=used.joules or joules,
            joules_estimated=not used.joules and self._energy.estimated,
            peak_memory_mib=max(used.peak_memory_mib, job.peak_memory_mib if job else 0),
            resumed=attempt.resumed,
        )
