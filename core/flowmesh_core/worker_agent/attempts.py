"""The life of an attempt: fetch inputs, wait for an engine, run, store outputs, report the end.

Every attempt ends in exactly one ``AttemptEnd``. A cancelled one is reported as ended at once,
though its host may need a few seconds to stop it.
"""

from collections.abc import Mapping

from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.protocol import checks
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    FailureReport,
    InputRef,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import (
    AttemptFinished,
    AttemptProgressed,
    AttemptUsage,
    HostAwake,
    HostExited,
    HostLoaded,
)
from flowmesh_core.worker_agent.instances import Instances
from flowmesh_core.worker_agent.instructions import (
    CancelAttempt,
    ClearTimer,
    DropAttempt,
    FetchCheckpoint,
    FetchInputs,
    FlushCheckpoints,
    RequestCheckpoint,
    RunAttempt,
    SetTimer,
    StoreOutputs,
)
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.ports import EnergyCounter, EngineFacts, FetchCounter
from flowmesh_core.worker_agent.reports import Reports, figure
from flowmesh_core.worker_agent.standby import StandbyHosts
from flowmesh_core.worker_agent.state import AgentState, Attempt, Instance
from flowmesh_core.worker_agent.transitions import AttemptPhase, InstanceState

CANCEL_WITHIN_S = 5.0
"""A host whose engine takes longer than this to stop an attempt is killed."""
LIVE_LOG_ATTEMPTS_MAX = 4
"""Above this number of attempts in a host, its lines are not reported while they run."""
LOG_CHARS_MAX = 8192
TIMEOUT_TIMER = "timeout"
CANCEL_TIMER = "cancel"
_DRAINED = FailureReport(FailureKind.DRAINED.value, "the worker was told to stop")
_TREES = frozenset({"model", "adapter"})
_RETRYABLE = frozenset(kind.value for kind in FailureKind if Failure(kind, "").retryable)


def comes_inline(ref: InputRef) -> bool:
    """Returns whether the whole content of an input came with its assignment."""
    artifact = ref.artifact
    if artifact.kind == "dataset":
        manifest = artifact.manifest
        return manifest is not None and all(c.blob in ref.inline for c in manifest.chunks)
    if artifact.kind in _TREES:
        return False
    return artifact.blob in ref.inline or artifact.value is not None


class Attempts:
    """Moves attempts through their phases.

    Attributes:
        counts: ended attempts by ``completed`` or the kind of failure.
    """

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        facts: EngineFacts,
        energy: EnergyCounter,
        fetches: FetchCounter,
        instances: Instances,
        standby: StandbyHosts,
        reports: Reports,
    ) -> None:
        self._state = state
        self._out = out
        self._facts = facts
        self._energy = energy
        self._fetches = fetches
        self._instances = instances
        self._standby = standby
        self._reports = reports
        self.counts: dict[str, int] = {}

    # -- before the run --------------------------------------------------------------------------

    def start(self, assignment: Assignment) -> None:
        """Begins an attempt; does nothing for one that is known already."""
        if self._reports.knows(assignment.attempt_id):
            return
        attempt = Attempt(assignment, self._out.now_s, self._out.wall_s)
        self._state.attempts[attempt.id] = attempt
        self._reports.take(attempt.id, assignment.token)
        if self._reports.draining:
            refusal: FailureReport | None = FailureReport(
                FailureKind.DRAINED.value, "the worker takes nothing new"
            )
        else:
            refusal = self._facts.refusal(assignment)
        if refusal is not None:
            self._end(attempt, refusal)
            return
        self._standby.request(assignment)
        attempt.move(AttemptPhase.FETCHING)
        attempt.inline = all(comes_inline(ref) for ref in assignment.inputs.values())
        if not attempt.inline:
            self._report(attempt)
        if _needs_store(attempt):
            self._fetches.begin(attempt.id)
        self._out.add(FetchInputs(assignment))

    def inputs_ready(self, attempt_id: str) -> None:
        """Continues an attempt whose inputs are on this machine."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is None:
            return
        if attempt.assignment.resume is not None:
            self._out.add(FetchCheckpoint(attempt_id))
        else:
            self._enqueue(attempt)

    def checkpoint_fetched(self, attempt_id: str, *, usable: bool) -> None:
        """Continues an attempt at its checkpoint, or at the start if that is unusable."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            attempt.resumed = usable
            self._enqueue(attempt)

    def place_waiting(self) -> None:
        """Gives attempts that wait for memory an instance, in the order in which they came.

        A later one does not overtake: a stream of small attempts would keep a large one waiting.
        """
        waiting = self._state.waiting
        while waiting:
            instance = self._instances.place(waiting[0])
            if instance is None:
                return
            self._join(instance, waiting.pop(0))

    def return_displaced(self) -> None:
        """Returns attempts that cannot get memory here while replicas of services stay."""
        for attempt in list(self._state.waiting):
            failure = self._instances.too_large_beside_pinned(attempt.assignment)
            if failure is not None:
                self.stop(attempt.id, failure)

    def _enqueue(self, attempt: Attempt) -> None:
        attempt.queued_s = self._out.now_s
        self._record_fetch(attempt)
        attempt.serial = attempt.serial or next(self._state.numbers)
        instance = self._instances.find(attempt)
        if instance is not None:
            self._join(instance, attempt)
            return
        failure = self._instances.too_large(attempt.assignment)
        if failure is not None:
            self._end(attempt, failure)
            return
        self._move(attempt, AttemptPhase.WAITING)
        self._state.waiting.append(attempt)

    def _join(self, instance: Instance, attempt: Attempt) -> None:
        self._instances.enqueue(instance, attempt)
        ready = instance.state is InstanceState.READY
        self._move(attempt, AttemptPhase.QUEUED if ready else AttemptPhase.LOADING)
        self._run_queued(instance)

    # -- in its host -----------------------------------------------------------------------------

    def host_loaded(self, instance: Instance, event: HostLoaded) -> None:
        """Sends the queue of an instance to its host, now that its engine is loaded; once."""
        loads = instance.state in (InstanceState.STARTING, InstanceState.LOADING)
        if instance.killed or not loads:
            return
        self._instances.loaded(instance, event)
        self._run_loaded(instance)

    def host_awake(self, instance: Instance, event: HostAwake) -> None:
        """Does the same for an instance that was asleep and is awake now."""
        if instance.state is InstanceState.WAKING:
            self._instances.awake(instance, event)
            self._run_loaded(instance)

    def _run_loaded(self, instance: Instance) -> None:
        for _, _, attempt in instance.queue:
            if not attempt.ended:
                attempt.load_s = self._out.now_s - attempt.queued_s
                self._move(attempt, AttemptPhase.QUEUED)
        self._run_queued(instance)
        self._instances.changed(instance)

    def host_exited(self, instance: Instance, event: HostExited) -> None:
        """Fails attempts that ran in a host that is gone; places those that waited anew.

        If the engine never loaded, those that waited fail too: the next load would fail as well.
        """
        failure = self._instances.exited(instance, event)
        failed = list(instance.running.values())
        waited = [attempt for _, _, attempt in sorted(instance.queue) if not attempt.ended]
        instance.running, instance.queue = {}, []
        if not instance.has_loaded:
            failed, waited = [*failed, *waited], []
        for attempt in failed:
            if attempt.ended:
                self._out.add(ClearTimer((CANCEL_TIMER, attempt.id)))
            else:
                attempt.log = instance.last_lines(attempt.first_line)
                attempt.libraries = instance.libraries
                self._stopped(attempt)
                self._fail(attempt, failure)
        for attempt in waited:
            attempt.instance = None
            self._enqueue(attempt)

    def progressed(self, event: AttemptProgressed) -> None:
        """Reports how far an attempt is."""
        attempt = self._state.attempts.get(event.attempt_id)
        if attempt is None or attempt.phase is not AttemptPhase.RUNNING:
            return
        done, total = figure(event.done), figure(event.total)
        unit = "" if checks.text("unit", event.unit, least=0) else event.unit
        attempt.rate.seen(self._out.now_s, done, total)
        self._reports.report(
            AttemptProgress(attempt.id, AttemptPhase.RUNNING.value, event.units, done, total, unit)
        )

    def printed(self, instance: Instance, line: str) -> None:
        """Reports a line of a host for its attempts, unless there are too many of them."""
        instance.lines_seen += 1
        instance.lines.append(line)
        concerned = list(instance.running.values()) or [a for _, _, a in instance.queue]
        if len(concerned) <= LIVE_LOG_ATTEMPTS_MAX:
            for attempt in concerned:
                self._reports.log(attempt.id, line)

    def finished(self, instance: Instance, event: AttemptFinished) -> None:
        """Ends an attempt that its host has ended, or stores its outputs first."""
        attempt = self._instances.finish(instance, event)
        self._run_queued(instance)
        if not instance.running:
            self._instances.changed(instance)
        if attempt is None:
            self._out.add(ClearTimer((CANCEL_TIMER, event.attempt_id)))
            return
        attempt.finished = event
        self._stopped(attempt)
        if event.failure is not None:
            self._fail(attempt, event.failure)
        elif event.outputs is not None:
            self._end(attempt, None, event.outputs, event.inline)
        else:
            attempt.storing_s = self._out.now_s
            self._move(attempt, AttemptPhase.STORING)
            self._out.add(StoreOutputs(attempt.id))

    def _run_queued(self, instance: Instance) -> None:
        while (attempt := self._instances.dequeue(instance)) is not None:
            attempt.sent_s = self._out.now_s
            self._energy.begin(attempt.id)
            self._out.add(RunAttempt(instance.id, attempt.id))
            timeout_s = attempt.assignment.timeout_s
            if timeout_s > 0:
                self._out.add(SetTimer((TIMEOUT_TIMER, attempt.id), self._out.now_s + timeout_s))
            self._move(attempt, AttemptPhase.RUNNING)

    # -- the end ---------------------------------------------------------------------------------

    def outputs_stored(
        self, attempt_id: str, outputs: Mapping[str, Artifact], inline: Mapping[Digest, bytes]
    ) -> None:
        """Ends an attempt whose outputs are in the store or travel in its report."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            self._end(attempt, None, outputs, inline)

    def outputs_failed(self, attempt_id: str, failure: FailureReport) -> None:
        """Fails an attempt of which an output could not be stored."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is None:
            return
        if attempt.instance is not None and attempt.instance.has_ended:
            # The files were removed with the host: neither the attempt nor the store is at fault.
            failure = FailureReport(
                FailureKind.PREEMPTED.value, "its host ended before its output was stored"
            )
        self._end(attempt, failure)

    def inputs_failed(self, attempt_id: str, failure: FailureReport) -> None:
        """Fails an attempt whose inputs cannot be fetched or do not pass a check."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            self._end(attempt, failure)

    def checkpoints_flushed(self, attempt_id: str) -> None:
        """Ends a failed attempt: its newest checkpoint is stored, and the next begins there."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None and attempt.finished is not None:
            self._end(attempt, attempt.finished.failure)

    def stop(self, attempt_id: str, failure: FailureReport) -> None:
        """Ends an attempt now; does nothing for an unknown one."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is None:
            return
        instance = attempt.instance
        self._end(attempt, failure)
        if instance is None:
            if attempt in self._state.waiting:
                self._state.waiting.remove(attempt)
        elif attempt_id in instance.running:
            self._out.add(CancelAttempt(instance.id, attempt_id))
            timer = (CANCEL_TIMER, attempt_id)
            self._out.add(SetTimer(timer, self._out.now_s + CANCEL_WITHIN_S))
        elif not instance.has_ended and not instance.has_queue():
            self._instances.changed(instance)

    def timed_out(self, attempt_id: str) -> None:
        """Ends an attempt that has reached its timeout."""
        attempt = self._state.attempts.get(attempt_id)
        if attempt is not None:
            failure = FailureReport(
                FailureKind.TIMEOUT.value,
                f"the attempt ran longer than its {attempt.assignment.timeout_s:g} s",
                "raise the step's timeout, or give the step less to do",
            )
            self.stop(attempt_id, failure)

    def not_stopped(self, attempt_id: str) -> None:
        """Kills the host whose engine has not stopped an attempt in time."""
        for instance in list(self._state.instances.values()):
            if attempt_id in instance.running:
                self._instances.kill(
                    instance,
                    FailureReport(
                        FailureKind.PREEMPTED.value,
                        f"the host of {instance.engine} was ended because another attempt in it "
                        "did not stop",
                    ),
                )

    def end_drained(self, *, running: bool) -> None:
        """Ends attempts as drained: all, or without ``running`` those that have not begun."""
        busy = (AttemptPhase.RUNNING, AttemptPhase.STORING)
        for attempt_id, attempt in list(self._state.attempts.items()):
            if running or attempt.phase not in busy:
                self.stop(attempt_id, _DRAINED)

    def request_checkpoints(self, within_s: float) -> None:
        """Has running attempts write a checkpoint and end, unless predicted to end in time."""
        for attempt in self._state.in_phase(AttemptPhase.RUNNING):
            ends_late = attempt.rate.remaining_s(self._out.now_s) >= within_s
            if ends_late and attempt.instance is not None:
                self._out.add(RequestCheckpoint(attempt.instance.id, attempt.id))

    def _fail(self, attempt: Attempt, failure: FailureReport) -> None:
        """Ends a failed attempt; a retryable one after its last checkpoint is stored."""
        if failure.kind in _RETRYABLE and attempt.phase is AttemptPhase.RUNNING:
            attempt.finished = attempt.finished or AttemptFinished(0, attempt.id, failure)
            attempt.move(AttemptPhase.STORING)
            self._out.add(FlushCheckpoints(attempt.id))
        else:
            self._end(attempt, failure)

    def _stopped(self, attempt: Attempt) -> None:
        """Records that it runs no more: storing counts against no timeout."""
        if attempt.sent_s is not None and attempt.stopped_s is None:
            attempt.stopped_s = self._out.now_s
            if attempt.assignment.timeout_s > 0:
                self._out.add(ClearTimer((TIMEOUT_TIMER, attempt.id)))

    def _record_fetch(self, attempt: Attempt) -> None:
        """Records seconds and bytes of fetching if that ends now."""
        if attempt.phase is AttemptPhase.FETCHING and _needs_store(attempt):
            attempt.fetch_s = self._out.now_s - attempt.started_s
            attempt.fetched_bytes += self._fetches.end(attempt.id)

    def _end(
        self,
        attempt: Attempt,
        failure: FailureReport | None,
        outputs: Mapping[str, Artifact] | None = None,
        inline: Mapping[Digest, bytes] | None = None,
    ) -> None:
        assignment = attempt.assignment
        del self._state.attempts[attempt.id]
        self._record_fetch(attempt)
        self._stopped(attempt)
        instance = attempt.instance
        log = attempt.log
        if not log and instance is not None and attempt.finished is None:
            log = instance.last_lines(attempt.first_line)
        end = AttemptEnd(
            attempt_id=attempt.id,
            action_id=assignment.action_id,
            outputs=dict(outputs or {}),
            inline=dict(inline or {}),
            failure=failure,
            usage=self._usage(attempt),
            libraries=dict(attempt.libraries),
            started_s=attempt.started_wall_s,
            ended_s=self._out.wall_s,
            log=log[-LOG_CHARS_MAX:],
            token=assignment.token,
        )
        attempt.move(AttemptPhase.ENDED)
        kind = failure.kind if failure is not None else "completed"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._reports.end(end)
        self._out.add(DropAttempt(assignment, failure))
        if instance is not None:
            self._instances.release_files(instance, attempt.id)

    def _usage(self, attempt: Attempt) -> Usage:
        finished = attempt.finished
        used = finished.usage if finished is not None else AttemptUsage()
        joules, estimated = self._energy.end(attempt.id)
        run_s = used.run_s
        if attempt.sent_s is not None and attempt.stopped_s is not None:
            # The control plane believes no longer time than has passed, whatever an engine says.
            passed_s = attempt.stopped_s - attempt.sent_s
            run_s = min(run_s, passed_s) if run_s else passed_s
        put_s = self._out.now_s - attempt.storing_s if attempt.storing_s is not None else 0.0
        return Usage(
            units=used.units,
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            load_s=attempt.load_s,
            run_s=run_s,
            fetch_s=attempt.fetch_s,
            put_s=put_s,
            joules=used.joules or joules,
            joules_estimated=not used.joules and estimated,
            peak_memory_mib=max(used.peak_memory_mib, attempt.peak_memory_mib),
            resumed=attempt.resumed,
            fetched_bytes=attempt.fetched_bytes,
        )

    def _move(self, attempt: Attempt, phase: AttemptPhase) -> None:
        attempt.move(phase)
        self._report(attempt)

    def _report(self, attempt: Attempt) -> None:
        waiting = attempt.phase is AttemptPhase.WAITING
        shown = AttemptPhase.QUEUED if waiting else attempt.phase
        self._reports.report(AttemptProgress(attempt.id, shown.value))


def _needs_store(attempt: Attempt) -> bool:
    """Whether an input or the checkpoint of an attempt does not come with its assignment."""
    return not attempt.inline or attempt.assignment.resume is not None
