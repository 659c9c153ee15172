"""All lanes of a simulated worker: one a signature, kept warm; the least used one makes room."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import EngineInstanceState, FailureReport
from flowmesh_core.units import Digest
from flowmesh_sim.models.devices import Device
from flowmesh_sim.workers.instance import SimInstance, SimJob


class SimMemory:
    """What the lanes reserve; never more than there is."""

    def __init__(self, device: Device, devices: int, host_mib: int) -> None:
        """Takes the totals."""
        self.host_free_mib = self.host_mib = host_mib
        self.device_mib = device.memory_mib
        self.free_mib = [device.memory_mib] * devices

    def can_ever(self, mib: int, devices: int) -> bool:
        """Whether an empty worker could reserve this."""
        if not devices:
            return mib <= self.host_mib
        return devices <= len(self.free_mib) and mib <= self.device_mib

    def reserve(self, mib: int, devices: int) -> tuple[int, ...] | None:
        """The devices that it is set aside on; None where there is too little."""
        if not devices:
            if mib > self.host_free_mib:
                return None
            self.host_free_mib -= mib
            return ()
        order = sorted(range(len(self.free_mib)), key=lambda i: (-self.free_mib[i], i))
        chosen = tuple(sorted(i for i in order[:devices] if self.free_mib[i] >= mib))
        if len(chosen) < devices:
            return None
        for index in chosen:
            self.free_mib[index] -= mib
        return chosen

    def release(self, mib: int, on: tuple[int, ...]) -> None:
        """Gives memory back."""
        if not on:
            self.host_free_mib += mib
        for index in on:
            self.free_mib[index] += mib


class InstanceMaker(ABC):
    """What the lanes need of their worker; see :class:`flowmesh_sim.workers.worker.SimWorker`."""

    @abstractmethod
    def open_lane(self, job: SimJob, on: tuple[int, ...]) -> SimInstance:
        """Starts a host for a job."""

    @abstractmethod
    def devices_of(self, job: SimJob) -> int:
        """How many devices its lane owns; 0 for a host on the CPU."""

    @abstractmethod
    def unload_s(self, lane: SimInstance) -> float:
        """How long its end takes."""

    @abstractmethod
    def job_ended(self, job: SimJob, failure: FailureReport | None) -> None:
        """A job has ended."""

    @abstractmethod
    def job_phase(self, job: SimJob, phase: str) -> None:
        """A job is in a phase."""


class SimInstances:
    """Places jobs in lanes and owns every host.

    Attributes:
        keep: signatures whose idle lanes make room last.
    """

    def __init__(self, maker: InstanceMaker, memory: SimMemory) -> None:
        """Takes who opens lanes, and the memory."""
        self._maker = maker
        self.memory = memory
        self.keep: frozenset[Digest] = frozenset()
        self.by_key: dict[str, SimInstance] = {}
        self._waiting: list[SimJob] = []

    def __iter__(self) -> Iterator[SimInstance]:
        """The lanes there are."""
        return iter(list(self.by_key.values()))

    def report(self) -> tuple[EngineInstanceState, ...]:
        """What the control plane is told."""
        return tuple(lane.report() for lane in self.by_key.values())

    def submit(self, job: SimJob) -> None:
        """Takes a job."""
        job.lane = None
        lane = self.by_key.get(key_of(job))
        if lane is not None and lane.state != "closing":
            lane.submit(job)
            return
        need, devices = job.assignment.memory_mib, self._maker.devices_of(job)
        if not self.memory.can_ever(need, devices):
            said = f"{job.assignment.engine} needs {need} MiB; this worker has too little"
            self._maker.job_ended(job, FailureReport(FailureKind.OUT_OF_MEMORY, said))
            return
        self._maker.job_phase(job, "queued")
        self._waiting.append(job)
        self.place()

    def abandon(self, job: SimJob) -> None:
        """Stops a job that nobody waits for."""
        if job.lane is not None:
            job.lane.abandon(job)
        elif job in self._waiting:
            self._waiting.remove(job)
            self.place()

    @property
    def loading(self) -> bool:
        """Whether an engine starts or loads."""
        return any(lane.state in ("starting", "loading") for lane in self.by_key.values())

    @property
    def waited_for(self) -> bool:
        """Whether an attempt waits for a lane."""
        return bool(self._waiting)

    def open_ahead(self, job: SimJob) -> bool:
        """Opens a lane in which nothing runs yet; whether it did. Else a lane may make room."""
        on = self.memory.reserve(job.assignment.memory_mib, self._maker.devices_of(job))
        if on is None:
            self._make_room(self.keep)
            return False
        self.by_key[key_of(job)] = self._maker.open_lane(job, on)
        return True

    def place(self) -> None:
        """Gives waiting jobs a lane in the order they came, making room where it is needed."""
        while self._waiting:
            job = self._waiting[0]
            lane = self.by_key.get(key_of(job))
            if lane is not None and lane.state == "closing":
                return
            if lane is None:
                on = self.memory.reserve(job.assignment.memory_mib, self._maker.devices_of(job))
                if on is None:
                    self._make_room()
                    return
                lane = self._maker.open_lane(job, on)
                self.by_key[key_of(job)] = lane
            self._waiting.pop(0)
            lane.submit(job)

    def _make_room(self, spare: frozenset[Digest] = frozenset()) -> None:
        lanes = self.by_key.values()
        if any(lane.state == "closing" for lane in lanes):
            return
        idle = [lane for lane in lanes if lane.idle and lane.signature not in spare]
        if idle:
            lane = min(idle, key=lambda one: (one.signature in self.keep, one.last_used_s))
            lane.close(self._maker.unload_s(lane))

    def changed(self, lane: SimInstance) -> None:
        """A lane's state changed: what is gone gives its memory back, what waits may go on."""
        if lane.gone:
            key = lane.isolated_for or lane.signature
            if self.by_key.get(key) is lane:
                del self.by_key[key]
                self.memory.release(lane.memory_mib, lane.on)
        elif lane.isolated_for and lane.idle:
            lane.close(self._maker.unload_s(lane))


def key_of(job: SimJob) -> str:
    """What tells lanes apart."""
    return job.assignment.attempt_id if job.assignment.isolate else job.assignment.signature
