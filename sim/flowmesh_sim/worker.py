"""A simulated worker: the real agent's behaviour by the protocol, around modelled engines.

It connects, says everything, takes up what it is told to hold, fetches, runs in lanes, stores,
reports until acknowledged, drains and leaves. What it computes is a duty (``duties``); how long it
takes is its device's and its lanes' matter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    Desired,
    FailureReport,
    Hello,
    InputRef,
    WorkerShape,
)
from flowmesh_core.protocol.results import Artifact, Usage
from flowmesh_core.units import Digest
from flowmesh_sim.content import Progress
from flowmesh_sim.devices import MIB, Device
from flowmesh_sim.dialling import Dialling
from flowmesh_sim.duties import Duties
from flowmesh_sim.engine import Engine, Timer, cancel
from flowmesh_sim.held import Held
from flowmesh_sim.lane import Job, Lane
from flowmesh_sim.lanes import LaneMaker, Lanes, Memory
from flowmesh_sim.openings import Openings
from flowmesh_sim.shelf import Shelf
from flowmesh_sim.store import SimStore

CHECKPOINT_MIB = 64
ACKNOWLEDGED_WITHIN_S = 5.0


class Observer(Protocol):
    """Who measures workers from outside."""

    def began(self, attempt_id: str) -> None:
        """An attempt runs."""
        ...

    def spoils(self, attempt_id: str) -> FailureReport | None:
        """Whether an attempt that did its work is to fail all the same, and how."""
        ...


@dataclass(slots=True, eq=False)
class _Attempt:
    assignment: Assignment
    number: int
    phase: str = "fetching"
    job: Job | None = None
    started_s: float = 0.0
    fetch_s: float = 0.0
    waits_for: int = 0
    resumed: float = 0.0
    timer: Timer | None = None


@dataclass(frozen=True)
class Surroundings:
    """What all workers of a simulation share.

    Attributes:
        epoch_s: the worker's wall clock at virtual second 0.
    """

    engine: Engine
    store: SimStore
    duties: Duties
    network: Any
    observer: Observer
    capacity: Callable[[str], int]
    needs_device: Callable[[str], bool]
    unload_s: tuple[float, float]
    grace_s: float
    epoch_s: float
    disk_bytes: int
    bytes_per_s: float
    upload_bytes_per_s: float
    request_s: float
    latency_s: float
    cold: dict[str, bool] = field(default_factory=dict)


class SimWorker(LaneMaker):
    """One worker, from its process's start to its end.

    Attributes:
        slow: how many times longer everything takes here now.
        skew_s: how far its wall clock is off.
        busy_s: seconds in which something ran; ``joules`` what it has drawn.
        held_s: seconds in which it held an attempt, loading and fetching included; ``freed_s`` when
            it last held one.
        gone: the process has ended; ``left_s`` says when.
    """

    def __init__(
        self,
        around: Surroundings,
        shape: WorkerShape,
        device: Device,
        *,
        incarnation: str,
        billed_since_s: float,
        phase_s: float,
        on_gone: Callable[["SimWorker"], None],
    ) -> None:
        """Takes its surroundings and what it is.

        Args:
            around: shared by all.
            shape: what it says of itself.
            device: the class of its devices.
            incarnation: unique per process.
            billed_since_s: virtual time from which it is paid for.
            phase_s: where in the interval its heartbeats fall.
            on_gone: told when the process has ended.
        """
        self.engine = around.engine
        self.around = around
        self.shape = shape
        self.device = device
        self.incarnation = incarnation
        self.born_s = self.engine.now_s
        self.billed_since_s = billed_since_s
        self.slow = 1.0
        self.skew_s = 0.0
        self.busy_s = 0.0
        self.held_s = 0.0
        self.freed_s = self.engine.now_s
        self.joules = 0.0
        self.gone = False
        self.left_s = 0.0
        self.draining = False
        self.held = Held()
        self._attempts: dict[str, _Attempt] = {}
        self._count = 0
        self._watts = float(device.facts.idle_w)
        self._busy = False
        self._measured_s = self.engine.now_s
        self._on_gone = on_gone
        memory = Memory(device, shape.devices if device.accelerator else 0, shape.host_memory_mib)
        self.lanes = Lanes(self, memory)
        self.shelf = Shelf(
            self.engine,
            around.store,
            budget_bytes=around.disk_bytes,
            bytes_per_s=around.bytes_per_s,
            request_s=around.request_s,
            in_use=self._in_use,
            changed=self._components_changed,
        )
        self.openings = Openings(self.lanes, self.shelf, around.store.contents, self._may_open)
        self.dialling = Dialling(self, phase_s)

    @property
    def name(self) -> str:
        """Its name."""
        return self.shape.name

    def _wall_s(self, virtual_s: float) -> float:
        return self.around.epoch_s + virtual_s + self.skew_s

    # -- what it says ----------------------------------------------------------------------------

    def hello(self, epoch: int) -> Hello:
        """Everything about it."""
        now = self.engine.now_s
        return Hello(
            version=1,
            token="",
            epoch=epoch,
            incarnation=self.incarnation,
            started_s=self._wall_s(self.billed_since_s),
            shape=self.shape,
            held=tuple(self.held.progress.values()),
            ended=tuple(self.held.ended.values()),
            lanes=self.lanes.report(),
            components=self.components(),
            draining=self.held.draining,
            checkpoints=tuple(self.held.checkpoints.values()),
            age_s=now - self.billed_since_s,
        )

    def components(self) -> tuple[Component, ...]:
        """Models and adapters with the nearest tier."""
        tier = "device" if self.device.accelerator else "host"
        loaded = {d for lane in self.lanes for d in lane.loaded if lane.state == "ready"}
        is_weights = self.around.store.contents.is_weights
        return tuple(
            Component(d, tier if d in loaded else "disk", size)
            for d, size in self.shelf.held.items()
            if is_weights(d)
        )

    def refresh(self) -> None:
        """Brings the progress of what runs up to date, before a heartbeat."""
        for lane in self.lanes:
            if lane.running:
                lane.advance()
                for attempt_id, job in lane.running.items():
                    done = lane.done(job)
                    units = int(job.duty.units * done)
                    self.held.report(
                        AttemptProgress(attempt_id, "running", units, done, 1.0, "share")
                    )

    def _components_changed(self) -> None:
        self.held.components_changed = True
        self.dialling.news()

    def _in_use(self) -> set[Digest]:
        used = {d for lane in self.lanes for d in lane.loaded}
        for attempt in self._attempts.values():
            used |= {ref.artifact.digest for ref in attempt.assignment.inputs.values()}
        return used

    # -- what it is told -------------------------------------------------------------------------

    def follow(self, desired: Desired) -> None:
        """Takes what it should hold from now on."""
        for attempt_id in desired.acknowledged:
            self.held.acknowledge(attempt_id)
        if desired.everything:
            wanted = {*desired.keep, *(a.attempt_id for a in desired.assign)}
            for attempt_id in [a for a in self._attempts if a not in wanted]:
                self.stop(attempt_id, FailureKind.CANCELLED, "nobody wants it any more")
        for assignment in desired.assign:
            self._take(assignment)
        for attempt_id in desired.cancel:
            self.stop(attempt_id, FailureKind.CANCELLED, "the attempt was cancelled")
        if desired.hold_open is not None:
            self.openings.told(desired.hold_open)
        if desired.drain:
            self.drain()

    def _may_open(self) -> bool:
        """Whether an engine may be opened ahead of work."""
        return not (self.gone or self.draining or self.lanes.waited_for)

    def stop(self, attempt_id: str, kind: FailureKind, message: str) -> None:
        """Stops an attempt; harmless for an unknown one."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            return
        job = attempt.job
        if job is not None:
            self.lanes.abandon(job)
        self._end(attempt, FailureReport(kind, message))

    # -- the life of an attempt ------------------------------------------------------------------

    def _take(self, a: Assignment) -> None:
        if self.held.knows(a.attempt_id):
            return
        self._count += 1
        if not self._attempts:
            self.freed_s = self.engine.now_s
        attempt = _Attempt(a, self._count, started_s=self.engine.now_s)
        self._attempts[a.attempt_id] = attempt
        self.held.take(a.attempt_id)
        if self.held.draining:
            self._end(attempt, FailureReport(FailureKind.DRAINED, "the worker was told to stop"))
            return
        far = [ref for ref in a.inputs.values() if not _at_hand(ref)]
        if a.resume is not None:
            far.append(a.resume)
        if not far:
            self._queue(attempt)
            return
        self._phase(attempt, "fetching")
        if self.around.duties.weights_mib(a) > a.memory_mib * max(1, a.tensor_parallel):
            # The manifest and the model's configuration are read first.
            self.engine.after(2 * self.around.request_s, self._refuse, attempt)
            return
        items = {blob: item for ref in far for blob, item in _items(ref).items()}
        attempt.waits_for = len(items)
        for digest, (blobs, size) in items.items():
            self.shelf.fetch(digest, blobs, size, partial(self._fetched, attempt))
            if a.attempt_id not in self._attempts:
                return

    def _refuse(self, attempt: _Attempt) -> None:
        if self._attempts.get(attempt.assignment.attempt_id) is attempt and not self.gone:
            said = f"the weights do not fit {attempt.assignment.memory_mib} MiB"
            self._end(attempt, FailureReport(FailureKind.OUT_OF_MEMORY, said))

    def _fetched(self, attempt: _Attempt, failure: FailureReport | None) -> None:
        if self._attempts.get(attempt.assignment.attempt_id) is not attempt or self.gone:
            return
        if failure is not None:
            resume = attempt.assignment.resume
            if resume is None or failure.detail != resume.artifact.digest:
                self._end(attempt, failure)
                return
            spoiled = (resume.artifact.digest,)
            report = Checkpoint(attempt.assignment.attempt_id, spoiled[0], spoiled=spoiled)
            self.held.checkpoint(report)
        attempt.waits_for -= 1
        if attempt.waits_for == 0:
            attempt.fetch_s = self.engine.now_s - attempt.started_s
            self._queue(attempt)

    def _queue(self, attempt: _Attempt) -> None:
        a = attempt.assignment
        duty = self.around.duties.of(a, self.device)
        if a.resume is not None and a.resume.artifact.digest in self.shelf.held:
            kept = self.around.store.contents.by_digest.get(a.resume.artifact.digest)
            attempt.resumed = kept.done if isinstance(kept, Progress) else 0.0
        left = duty.steps * (1.0 - attempt.resumed)
        attempt.job = Job(a, duty, left, attempt.number, self.engine.now_s, resumed=attempt.resumed)
        self.lanes.submit(attempt.job)

    def job_phase(self, job: Job, phase: str) -> None:
        """As :meth:`LaneOwner.job_phase`; ``again`` places it anew."""
        attempt = self._attempts.get(job.assignment.attempt_id)
        if attempt is None or attempt.job is not job:
            return
        if phase == "again":
            self.lanes.submit(job)
            return
        self._phase(attempt, phase)
        if phase == "running":
            self.around.observer.began(job.assignment.attempt_id)
            if job.assignment.timeout_s > 0:
                attempt.timer = self.engine.after(
                    job.assignment.timeout_s,
                    self.stop,
                    job.assignment.attempt_id,
                    FailureKind.TIMEOUT,
                    "the attempt ran longer than its timeout",
                )
            self._next_checkpoint(attempt, job)

    def _phase(self, attempt: _Attempt, phase: str) -> None:
        attempt.phase = phase
        self.held.report(AttemptProgress(attempt.assignment.attempt_id, phase))
        self.dialling.news()

    def _next_checkpoint(self, attempt: _Attempt, job: Job) -> None:
        every = job.duty.checkpoint_every
        if every:
            self.engine.after(every * job.duty.steps, self._checkpoint, attempt, job)

    def _checkpoint(self, attempt: _Attempt, job: Job) -> None:
        attempt_id = attempt.assignment.attempt_id
        lane = job.lane
        if lane is None or self.gone or attempt_id not in lane.running:
            return
        lane.advance()
        done = lane.done(job)
        if done < 1.0 and not self.around.store.down:
            digest = digest_bytes(f"checkpoint {attempt_id} {done!r}".encode())
            store, size = self.around.store, CHECKPOINT_MIB * MIB
            store.contents.by_digest[digest] = Progress(done)
            store.put_blob(digest, size)
            store.contents.scopes.setdefault(digest, set()).add(attempt_id.split("/")[0])
            self.held.checkpoint(Checkpoint(attempt_id, digest, done, size))
            self.dialling.news()
        self._next_checkpoint(attempt, job)

    def job_ended(self, job: Job, failure: FailureReport | None) -> None:
        """As :meth:`LaneOwner.job_ended`: stores the outputs of a success."""
        attempt = self._attempts.get(job.assignment.attempt_id)
        if attempt is None or attempt.job is not job:
            return
        failure = failure or self.around.observer.spoils(job.assignment.attempt_id)
        if failure is not None:
            self._end(attempt, failure)
            return
        outputs, inline = self.around.duties.outputs(job.assignment, job.duty)
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
        store = self.around.store
        took_s = self.around.request_s + store.slow_s + size / self.around.upload_bytes_per_s
        self.engine.after(took_s, self._stored, attempt, outputs, inline, size, took_s)

    def _stored(
        self,
        attempt: _Attempt,
        outputs: dict[str, Artifact],
        inline: dict[Digest, bytes],
        size: int,
        took_s: float,
    ) -> None:
        if self.gone or self._attempts.get(attempt.assignment.attempt_id) is not attempt:
            return
        if self.around.store.down:
            self._store(attempt, outputs, inline, size)
            return
        for artifact in outputs.values():
            self.around.store.put(artifact, inline)
            if any(b not in inline for b in artifact.blobs()):
                for digest, (_, part) in _items(InputRef(artifact)).items():
                    self.shelf.keep(digest, part)
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
            self.held_s += self.engine.now_s - self.freed_s
            self.freed_s = self.engine.now_s
        cancel(attempt.timer)
        self.held.end(
            AttemptEnd(
                attempt_id=a.attempt_id,
                action_id=a.action_id,
                outputs=outputs or {},
                inline=inline or {},
                failure=failure,
                usage=self._usage(attempt, put_s),
                started_s=self._wall_s(attempt.started_s),
                ended_s=self._wall_s(self.engine.now_s),
            )
        )
        if job is not None and job.lane is not None:
            job.lane.release(a.attempt_id)
        self.dialling.news()
        self._leave_if_drained()

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
            run_s=self.engine.now_s - job.sent_s - put_s,
            fetch_s=attempt.fetch_s,
            put_s=put_s,
            joules=job.joules,
            peak_memory_mib=duty.peak_mib,
            resumed=bool(attempt.resumed),
        )

    # -- lanes -----------------------------------------------------------------------------------

    @property
    def warm_mib(self) -> int:
        """Memory of the lanes that it holds open."""
        return sum(lane.memory_mib for lane in self.lanes if lane.state == "ready")

    def devices_of(self, job: Job) -> int:
        """As :meth:`LaneMaker.devices_of`."""
        wants = self.device.accelerator and self.around.needs_device(job.assignment.engine)
        return job.assignment.tensor_parallel if wants else 0

    def open_lane(self, job: Job, on: tuple[int, ...]) -> Lane:
        """As :meth:`LaneMaker.open_lane`."""
        a = job.assignment
        model = self.around.duties.model_of(a)
        lane = Lane(
            self, a, device=self.device, model=model, on=on, capacity=self.around.capacity(a.engine)
        )
        loaded = tuple(a.inputs[p].artifact.digest for p in a.components if p in a.inputs)
        process_s, load_s = self.around.duties.start_s(a, self.device)
        lane.open(process_s * self.slow, load_s * self.slow, loaded)
        if self.around.duties.needs_mib(a) > a.memory_mib * max(1, len(on)):
            short = FailureReport(FailureKind.OUT_OF_MEMORY, f"{a.engine} does not fit its memory")
            # Engines compare what the model's files say with their memory before they load.
            self.engine.after(self.around.duties.refused_s * self.slow, lane.end, short)
        return lane

    def unload_s(self, lane: Lane) -> float:
        """As :meth:`LaneMaker.unload_s`."""
        return self.around.unload_s[0 if lane.loaded else 1]

    def lane_changed(self, lane: Lane) -> None:
        """As :meth:`LaneOwner.lane_changed`."""
        self.lanes.changed(lane)
        self.held.lanes_changed = self.held.components_changed = True
        self.replan()
        self.dialling.news()
        self.engine.after(0.0, self.lanes.place)
        self.engine.after(0.0, self.openings.go_on)

    def replan(self) -> None:
        """As :meth:`LaneOwner.replan`: devices are shared equally by the lanes that run on them."""
        self.measure()
        lanes = [lane for lane in self.lanes if not lane.gone]
        busy = [lane for lane in lanes if lane.running]
        drawing = [lane for lane in lanes if lane.running or lane.state == "loading"]
        loaded = any(lane.loaded for lane in lanes)
        facts = self.device.facts
        self._watts = float(facts.context_w if loaded else facts.idle_w) * self.shape.devices
        if drawing:
            used = sum(lane.watts() for lane in drawing) / len(drawing)
            on = len({i for lane in drawing for i in lane.on}) or 1
            self._watts = used * on + self._watts * (1 - on / self.shape.devices)
        self._busy = bool(busy)
        for lane in busy:
            lane.advance()
            mates = sum(bool(set(other.on) & set(lane.on)) for other in busy) if lane.on else 1
            lane.plan(1.0 / mates, self.slow, self._watts / len(drawing))
        for lane in lanes:
            if not lane.running:
                lane.plan(1.0, self.slow, 0.0)

    def measure(self) -> None:
        """Counts energy and busy time up to now."""
        passed = self.engine.now_s - self._measured_s
        self._measured_s = self.engine.now_s
        self.joules += self._watts * passed
        self.busy_s += passed if self._busy else 0.0

    # -- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Takes nothing new, ends what can end within the grace period, hands the rest back."""
        if self.draining or self.gone:
            return
        self.draining = self.held.draining = True
        for attempt_id, attempt in list(self._attempts.items()):
            if attempt.phase not in ("running", "storing"):
                self.stop(attempt_id, FailureKind.DRAINED, "the worker was told to stop")
        self.engine.after(self.around.grace_s, self._hand_back)
        self.dialling.news()
        self._leave_if_drained()

    def _hand_back(self) -> None:
        for attempt_id in list(self._attempts):
            self.stop(attempt_id, FailureKind.DRAINED, "the worker was told to stop")

    def _leave_if_drained(self) -> None:
        if self.draining and not self._attempts and not self.gone:
            self.engine.after(0.0, self._goodbye, self.engine.now_s + ACKNOWLEDGED_WITHIN_S)

    def _goodbye(self, by_s: float) -> None:
        if self.gone or self._attempts:
            return
        if self.held.ended and self.engine.now_s < by_s:
            self.engine.after(0.25, self._goodbye, by_s)
            return
        self.dialling.goodbye()
        self.die()

    def die(self) -> None:
        """The process ends at once; nothing is said."""
        if self.gone:
            return
        self.measure()
        self.gone, self.left_s = True, self.engine.now_s
        for lane in self.lanes:
            for job in lane.running.values():
                job.abandoned = True
            lane.gone = True
            lane.running = {}
            lane.plan(1.0, 1.0, 0.0)
        self._attempts.clear()
        self.dialling.closed()
        self._on_gone(self)


def _at_hand(ref: InputRef) -> bool:
    """Whether an input came with the assignment."""
    a = ref.artifact
    if a.kind == "dataset":
        return a.manifest is not None and all(c.blob in ref.inline for c in a.manifest.chunks)
    return a.kind not in ("model", "adapter") and (a.blob in ref.inline or a.value is not None)


def _items(ref: InputRef) -> dict[Digest, tuple[tuple[Digest, ...], int]]:
    """What has to be fetched for an input: name → blobs that must be there, and bytes."""
    a = ref.artifact
    if a.kind == "dataset" and a.manifest is not None:
        chunks = [c for c in a.manifest.chunks if c.blob not in ref.inline]
        return {c.blob: ((c.blob,), c.bytes) for c in chunks}
    return {a.digest: ((a.blob,), a.size_bytes)}
