"""A simulated worker: the real agent's behaviour by the protocol, around modelled engines.

It connects, says everything, takes up what it is told to hold (``attempts``), reports until
acknowledged, drains and leaves. What it computes is a duty (``duties``); how long it takes is its
device's and its lanes' matter.
"""

from collections.abc import Callable

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    Assignment,
    AttemptProgress,
    Component,
    Desired,
    FailureReport,
    Hello,
    PrewarmSpec,
    WorkerShape,
)
from flowmesh_core.units import Digest
from flowmesh_sim.models.devices import Device
from flowmesh_sim.models.library import library_of
from flowmesh_sim.workers.attempts import SimAttempts
from flowmesh_sim.workers.connection import SimConnection
from flowmesh_sim.workers.context import WorkerContext
from flowmesh_sim.workers.disk_cache import DiskCache
from flowmesh_sim.workers.instance import SimInstance, SimJob
from flowmesh_sim.workers.instances import InstanceMaker, SimInstances, SimMemory
from flowmesh_sim.workers.prewarm import SimPrewarmer
from flowmesh_sim.workers.report_buffer import SimReportBuffer
from flowmesh_sim.workers.standby import SimStandbyHosts

ACKNOWLEDGED_WITHIN_S = 5.0


class SimWorker(InstanceMaker):
    """One worker, from its process's start to its end.

    Attributes:
        slow: how many times longer everything takes here now.
        skew_s: how far its wall clock is off.
        busy_s: seconds in which something ran; ``joules`` what it has drawn.
        gone: the process has ended; ``left_s`` says when.
    """

    def __init__(
        self,
        around: WorkerContext,
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
        self.joules = 0.0
        self.gone = False
        self.left_s = 0.0
        self.draining = False
        self.held = SimReportBuffer()
        self._watts = float(device.facts.idle_w)
        self._busy = False
        self._measured_s = self.engine.now_s
        self._on_gone = on_gone
        memory = SimMemory(
            device, shape.devices if device.accelerator else 0, shape.host_memory_mib
        )
        self.lanes = SimInstances(self, memory)
        self.shelf = DiskCache(
            self.engine,
            around.store,
            budget_bytes=around.disk_bytes,
            bytes_per_s=around.bytes_per_s,
            request_s=around.request_s,
            in_use=self._in_use,
            changed=self._components_changed,
        )
        self.attempts = SimAttempts(
            around,
            device,
            self.held,
            self.lanes,
            self.shelf,
            wall_s=self._wall_s,
            moved=self._news,
            none_left=self._leave_if_drained,
        )
        self.prepared = SimStandbyHosts(
            self.engine, lambda: around.duties.process_s * self.slow, lambda: self.lanes.loading
        )
        self.openings = SimPrewarmer(
            self.lanes, self.shelf, around.store.contents, self._may_open, self._asked
        )
        self.dialling = SimConnection(self, phase_s)

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
        self._news()

    def _news(self) -> None:
        self.dialling.news()

    def _in_use(self) -> set[Digest]:
        return {d for lane in self.lanes for d in lane.loaded} | self.attempts.inputs()

    # -- what it is told -------------------------------------------------------------------------

    def follow(self, desired: Desired) -> None:
        """Takes what it should hold from now on."""
        for attempt_id in desired.acknowledged:
            self.held.acknowledge(attempt_id)
        if desired.everything:
            wanted = {*desired.keep, *(a.attempt_id for a in desired.assign)}
            for attempt_id in (a for a in self.attempts if a not in wanted):
                self.attempts.stop(attempt_id, FailureKind.CANCELLED, "nobody wants it any more")
        for assignment in desired.assign:
            self._asked(assignment)
            self.attempts.take(assignment)
        for attempt_id in desired.cancel:
            self.attempts.stop(attempt_id, FailureKind.CANCELLED, "the attempt was cancelled")
        if desired.hold_open is not None:
            self.prepared.allowed = True
            self.openings.told(desired.hold_open)
        if desired.drain:
            self.drain()

    def _asked(self, wanted: Assignment | PrewarmSpec) -> None:
        kind = library_of(wanted.engine)
        if kind is not None:
            self.prepared.asked(kind)

    def _may_open(self) -> bool:
        """Whether an engine may be opened ahead of work."""
        return not (self.gone or self.draining or self.lanes.waited_for)

    # -- lanes -----------------------------------------------------------------------------------

    @property
    def warm_mib(self) -> int:
        """Memory of the lanes that it holds open."""
        return sum(lane.memory_mib for lane in self.lanes if lane.state == "ready")

    def devices_of(self, job: SimJob) -> int:
        """As :meth:`InstanceMaker.devices_of`."""
        wants = self.device.accelerator and self.around.needs_device(job.assignment.engine)
        return job.assignment.tensor_parallel if wants else 0

    def open_lane(self, job: SimJob, on: tuple[int, ...]) -> SimInstance:
        """As :meth:`InstanceMaker.open_lane`."""
        a = job.assignment
        model = self.around.duties.model_of(a)
        lane = SimInstance(
            self, a, device=self.device, model=model, on=on, capacity=self.around.capacity(a.engine)
        )
        loaded = tuple(a.inputs[p].artifact.digest for p in a.components if p in a.inputs)
        process_s, load_s = self.around.duties.start_s(a, self.device)
        kind = library_of(a.engine)
        prepared_s = self.prepared.take(kind) if loaded and kind is not None else None
        if prepared_s is None:
            prepared_s = process_s * self.slow
        lane.open(prepared_s, load_s * self.slow, loaded)
        if self.around.duties.needs_mib(a) > a.memory_mib * max(1, len(on)):
            short = FailureReport(FailureKind.OUT_OF_MEMORY, f"{a.engine} does not fit its memory")
            # Engines compare what the model's files say with their memory before they load.
            self.engine.after(self.around.duties.refused_s * self.slow, lane.end, short)
        return lane

    def job_phase(self, job: SimJob, phase: str) -> None:
        """As :meth:`InstanceOwner.job_phase`."""
        self.attempts.job_phase(job, phase)

    def job_ended(self, job: SimJob, failure: FailureReport | None) -> None:
        """As :meth:`InstanceOwner.job_ended`."""
        self.attempts.job_ended(job, failure)

    def unload_s(self, lane: SimInstance) -> float:
        """As :meth:`InstanceMaker.unload_s`."""
        return self.around.unload_s[0 if lane.loaded else 1]

    def lane_changed(self, lane: SimInstance) -> None:
        """As :meth:`InstanceOwner.lane_changed`."""
        self.lanes.changed(lane)
        self.held.lanes_changed = self.held.components_changed = True
        self.replan()
        self.dialling.news()
        self.engine.after(0.0, self.lanes.place)
        self.engine.after(0.0, self.prepared.go_on)
        self.engine.after(0.0, self.openings.go_on)

    def replan(self) -> None:
        """As :meth:`InstanceOwner.replan`: lanes that run on a device share it equally."""
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
        for attempt_id in self.attempts:
            if self.attempts.phase(attempt_id) not in ("running", "storing"):
                self.attempts.stop(attempt_id, FailureKind.DRAINED, "the worker was told to stop")
        self.engine.after(self.around.grace_s, self._hand_back)
        self.dialling.news()
        self._leave_if_drained()

    def _hand_back(self) -> None:
        for attempt_id in self.attempts:
            self.attempts.stop(attempt_id, FailureKind.DRAINED, "the worker was told to stop")

    def _leave_if_drained(self) -> None:
        if self.draining and not self.attempts and not self.gone:
            self.engine.after(0.0, self._goodbye, self.engine.now_s + ACKNOWLEDGED_WITHIN_S)

    def _goodbye(self, by_s: float) -> None:
        if self.gone or self.attempts:
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
        self.attempts.forget()
        self.dialling.closed()
        self._on_gone(self)
