"""The life of a simulated attempt: fetch, wait for a lane, run, store, report.

As ``flowmesh_worker.agent.attempts``, in virtual time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    InputRef,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.environment import Timer, cancel
from flowmesh_sim.models.content import SimCheckpoint
from flowmesh_sim.models.devices import MIB, Device
from flowmesh_sim.workers.context import WorkerContext
from flowmesh_sim.workers.disk_cache import DiskCache
from flowmesh_sim.workers.inputs import at_hand, items_of
from flowmesh_sim.workers.instance import SimJob
from flowmesh_sim.workers.instances import SimInstances
from flowmesh_sim.workers.report_buffer import SimReportBuffer

CHECKPOINT_MIB = 64


@dataclass(slots=True, eq=False)
class _Attempt:
    assignment: Assignment
    number: int
    phase: str = "fetching"
    job: SimJob | None = None
    started_s: float = 0.0
    fetch_s: float = 0.0
    waits_for: int = 0
    resumed: float = 0.0
    timer: Timer | None = None


class SimAttempts:
    """All attempts that a worker works on.

    Attributes:
        held_s: seconds in which it held one, loading and fetching included; ``freed_s`` when it
            last held one.
    """

    def __init__(
        self,
        around: WorkerContext,
        device: Device,
        held: SimReportBuffer,
        lanes: SimInstances,
        shelf: DiskCache,
        *,
        wall_s: Callable[[float], float],
        moved: Callable[[], None],
        none_left: Callable[[], None],
    ) -> None:
        """Takes the parts that an attempt passes through.

        Args:
            around: shared by all workers.
            device: the class of its devices.
            held: what the control plane is told.
            lanes: where attempts run.
            shelf: where their inputs come to lie.
            wall_s: the worker's clock at a virtual time.
            moved: told of every move.
            none_left: told when the last one has ended.
        """
        self._engine = around.engine
        self._around = around
        self._device = device
        self._held = held
        self._lanes = lanes
        self._shelf = shelf
        self._wall_s = wall_s
        self._moved = moved
        self._none_left = none_left
        self._attempts: dict[str, _Attempt] = {}
        self._count = 0
        self.held_s = 0.0
        self.freed_s = self._engine.now_s

    def __len__(self) -> int:
        """How many there are."""
        return len(self._attempts)

    def __iter__(self) -> Iterator[str]:
        """Their ids."""
        return iter(list(self._attempts))

    def phase(self, attempt_id: str) -> str:
        """Where one is."""
        return self._attempts[attempt_id].phase

    def inputs(self) -> set[Digest]:
        """What they read."""
        return {
            ref.artifact.digest
            for attempt in self._attempts.values()
            for ref in attempt.assignment.inputs.values()
        }

    def forget(self) -> None:
        """The process has ended: nothing of them is said any more."""
        self._attempts.clear()

    def stop(self, attempt_id: str, kind: FailureKind, message: str) -> None:
        """Stops an attempt; harmless for an unknown one."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            return
        job = attempt.job
        if job is not None:
            self._lanes.abandon(job)
        self._end(attempt, FailureReport(kind, message))

    def take(self, a: Assignment) -> None:
        """Takes an attempt up; one that is known already is left alone."""
        if self._held.knows(a.attempt_id):
            return
        self._count += 1
        if not self._attempts:
            self.freed_s = self._engine.now_s
        attempt = _Attempt(a, self._count, started_s=self._engine.now_s)
        self._attempts[a.attempt_id] = attempt
        self._held.take(a.attempt_id)
        if self._held.draining:
            self._end(attempt, FailureReport(FailureKind.DRAINED, "the worker was told to stop"))
            return
        far = [ref for ref in a.inputs.values() if not at_hand(ref)]
        if a.resume is not None:
            far.append(a.resume)
        if not far:
            self._queue(attempt)
            return
        self._phase(attempt, "fetching")
        if self._around.duties.weights_mib(a) > a.memory_mib * max(1, a.tensor_parallel):
            # The manifest and the model's configuration are read first.
            self._engine.after(2 * self._around.request_s, self._refuse, attempt)
            return
        items = {blob: item for ref in far for blob, item in items_of(ref).items()}
        attempt.waits_for = len(items)
        for digest, (blobs, size) in items.items():
            self._shelf.fetch(digest, blobs, size, partial(self._fetched, attempt))
            if a.attempt_id not in self._attempts:
                return

    def _refuse(self, attempt: _Attempt) -> None:
        if self._attempts.get(attempt.assignment.attempt_id) is attempt:
            said = f"the weights do not fit {attempt.assignment.memory_mib} MiB"
            self._end(attempt, FailureReport(FailureKind.OUT_OF_MEMORY, said))

    def _fetched(self, attempt: _Attempt, failure: FailureReport | None) -> None:
        if self._attempts.get(attempt.assignment.attempt_id) is not attempt:
            return
        if failure is not None:
            resume = attempt.assignment.resume
            if resume is None or failure.detail != resume.artifact.digest:
                self._end(attempt, failure)
                return
            spoiled = (resume.artifact.digest,)
            report = Checkpoint(attempt.assignment.attempt_id, spoiled[0], spoiled=spoiled)
            self._held.checkpoint(report)
        attempt.waits_for -= 1
        if attempt.waits_for == 0:
            attempt.fetch_s = self._engine.now_s - attempt.started_s
            self._queue(attempt)

    def _queue(self, attempt: _Attempt) -> None:
        a = attempt.assignment
        duty = self._around.duties.of(a, self._device)
        if a.resume is not None and a.resume.artifact.digest in self._shelf.held:
            kept = self._around.store.contents.by_digest.get(a.resume.artifact.digest)
            attempt.resumed = kept.done if isinstance(kept, SimCheckpoint) else 0.0
        left = duty.steps * (1.0 - attempt.resumed)
        attempt.job = SimJob(
            a, duty, left, attempt.number, self._engine.now_s, resumed=attempt.resumed
        )
        self._lanes.submit(attempt.job)

    def job_phase(self, job: SimJob, phase: str) -> None:
        """As :meth:`InstanceOwner.job_phase`; ``again`` places it anew."""
        attempt = self._attempts.get(job.assignment.attempt_id)
        if attempt is None or attempt.job is not job:
            return
        if phase == "again":
            self._lanes.submit(job)
            return
        self._phase(attempt, phase)
        if phase == "running":
            self._around.observer.began(job.assignment.attempt_id)
            if job.assignment.timeout_s > 0:
                attempt.timer = self._engine.after(
                    job.assignment.timeout_s,
                    self.stop,
                    job.assignment.attempt_id,
                    FailureKind.TIMEOUT,
                    "the attempt ran longer than its timeout",
                )
            self._next_checkpoint(attempt, job)

    def _phase(self, attempt: _Attempt, phase: str) -> None:
        attempt.phase = phase
        self._held.report(AttemptProgress(attempt.assignment.attempt_id, phase))
        self._moved()

    def _next_checkpoint(self, attempt: _Attempt, job: SimJob) -> None:
        every = job.duty.checkpoint_every
        if every:
            self._engine.after(every * job.duty.steps, self._checkpoint, attempt, job)

    def _checkpoint(self, attempt: _Attempt, job: SimJob) -> None:
        attempt_id = attempt.assignment.attempt_id
        lane = job.lane
        if lane is None or attempt_id not in lane.running:
            return
        lane.advance()
        done = lane.done(job)
        if done < 1.0 and not self._around.store.down:
            digest = digest_bytes(f"checkpoint {attempt_id} {done!r}".encode())
            store, size = self._around.store, CHECKPOINT_MIB * MIB
            store.contents.by_digest[digest] = SimCheckpoint(done)
            store.put_blob(digest, size)
            store.contents.scopes.setdefault(digest, set()).add(attempt_id.split("/")[0])
            self._held.checkpoint(Checkpoint(attempt_id, digest, done, size))
            self._moved()
        self._next_checkpoint(attempt, job)

    def job_ended(self, job: SimJob, failure: FailureReport | None) -> None:
        """As :meth:`InstanceOwner.job_ended`: stores the outputs of a success."""
        attempt = self._attempts.get(job.assignment.attempt_id)
        if attempt is None or attempt.job is not job:
            return
        failure = failure or self._around.observer.spoils(job.assignment.attempt_id)
        if failure is not None:
            self._end(attempt, failure)
            return
        outputs, inline = self._around.duties.outputs(job.assignment, job.duty)
        size = sum(
            a.size_bytes for a in outputs.values() if any(b not in inline for b in a.blobs())
        )
        if not size:
            self._end(attempt, None, outputs, inline)
            return
        self._phase(attempt, "storing")
        self._store(attempt, outputs, inline, size)

    def _store(
        self,
        attempt: _Attempt,
        outputs: dict[str, Artifact],
        inline: dict[Digest, bytes],
        size: int,
    ) -> None:
        store = self._around.store
        took_s = self._around.request_s + store.slow_s + size / self._around.upload_bytes_per_s
        self._engine.after(took_s, self._stored, attempt, outputs, inline, size, took_s)

    def _stored(
        self,
        attempt: _Attempt,
        outputs: dict[str, Artifact],
        inline: dict[Digest, bytes],
        size: int,
        took_s: float,
    ) -> None:
        if self._attempts.get(attempt.assignment.attempt_id) is not attempt:
            return
        if self._around.store.down:
            self._store(attempt, outputs, inline, size)
            return
        for artifact in outputs.values():
            self._around.store.put(artifact, inline)
            if any(b not in inline for b in artifact.blobs()):
                for digest, (_, part) in items_of(InputRef(artifact)).items():
                    self._shelf.keep(digest, part)
        self._end(attempt, None, outputs, inline, put_s=took_s)

    def _end(
        self,
        attempt: _Attempt,
        failure: FailureReport | None,
        outputs: dict[str, Artifact] | None = None,
        inline: dict[Digest, bytes] | None = None,
        put_s: float = 0.0,
    ) -> None:
        a, job = attempt.assignment, attempt.job
        if self._attempts.pop(a.attempt_id, None) is None:
            return
        if not self._attempts:
            self.held_s += self._engine.now_s - self.freed_s
            self.freed_s = self._engine.now_s
        cancel(attempt.timer)
        self._held.end(
            AttemptEnd(
                attempt_id=a.attempt_id,
                action_id=a.action_id,
                outputs=outputs or {},
                inline=inline or {},
                failure=failure,
                usage=self._usage(attempt, put_s),
                started_s=self._wall_s(attempt.started_s),
                ended_s=self._wall_s(self._engine.now_s),
            )
        )
        if job is not None and job.lane is not None:
            job.lane.release(a.attempt_id)
        self._moved()
        if not self._attempts:
            self._none_left()

    def _usage(self, attempt: _Attempt, put_s: float) -> Usage:
        job = attempt.job
        if job is None or not job.sent_s:
            return Usage(fetch_s=attempt.fetch_s, load_s=job.load_s if job else 0.0)
        duty = job.duty
        return Usage(
            units=duty.units,
            tokens_in=duty.tokens_in,
            tokens_out=duty.tokens_out,
            load_s=job.load_s,
            run_s=self._engine.now_s - job.sent_s - put_s,
            fetch_s=attempt.fetch_s,
            put_s=put_s,
            joules=job.joules,
            peak_memory_mib=duty.peak_mib,
            resumed=bool(attempt.resumed),
        )
