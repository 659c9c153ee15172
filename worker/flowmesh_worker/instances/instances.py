"""All lanes of a worker: one host a signature, kept warm, the least recently used closed for room.

An attempt whose signature has a lane joins it. Another one needs memory: where too little is free,
idle lanes are closed, the least recently used first, and the attempt waits for them to be gone.
Lanes that the control plane wants open ahead of work are closed for an attempt only where no other
is idle, and never for one another. For such a lane others are closed only where that suffices, and
none that an attempt is about to use.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    Assignment,
    EngineInstanceState,
    FailureReport,
    PrewarmSpec,
)
from flowmesh_core.units import Digest
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.instances.host_process import host_environment
from flowmesh_worker.instances.instance import EngineInstance
from flowmesh_worker.instances.job import AttemptJob, JobOutcome
from flowmesh_worker.instances.memory_budget import MemoryBudget, Reservation
from flowmesh_worker.instances.oom import OomKills
from flowmesh_worker.instances.standby import StandbyHosts
from flowmesh_worker.ipc.frames import HostInput, Start
from flowmesh_worker.ipc.host_directory import remove_host_folder


class EngineInstances:
    """Places jobs in lanes and owns every host."""

    def __init__(
        self,
        engines: Engines,
        budget: MemoryBudget,
        cpus: int,
        scratch: Path,
        on_change: Callable[[EngineInstance], None],
        oom_kills: OomKills | None = None,
    ) -> None:
        """Takes the engines, the memory, the CPU threads and where hosts may write."""
        self.prepared = StandbyHosts(engines, budget, cpus, self._new_folder, lambda: self._busy)
        self._engines = engines
        self._budget = budget
        self._cpus = cpus
        self._scratch = scratch
        self._report_change = on_change
        self._oom_kills = oom_kills or OomKills()
        self._lanes: dict[str, EngineInstance] = {}
        self._waiting: list[AttemptJob] = []
        self._held_open: frozenset[Digest] = frozenset()
        self._opening: set[asyncio.Task[None]] = set()
        self._count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def __iter__(self) -> Iterator[EngineInstance]:
        """The lanes there are."""
        return iter(list(self._lanes.values()))

    def report(self) -> tuple[EngineInstanceState, ...]:
        """What the control plane is told."""
        return tuple(lane.report() for lane in self._lanes.values())

    def submit(self, job: AttemptJob) -> None:
        """Takes a job; its outcome is set when it has ended, whatever happens."""
        job.queued_s = time.monotonic()
        job.lane = None
        lane = self._lanes.get(_key(job))
        if lane is not None and lane.state != "closing":
            lane.submit(job)
            return
        failure = self.too_large(job.assignment)
        if failure is not None:
            job.outcome.set_result(JobOutcome(None, failure, "", {}))
            return
        job.on_phase("queued")
        self._waiting.append(job)
        self._place()

    def abandon(self, job: AttemptJob) -> None:
        """Stops a job that nobody waits for any more."""
        if job.lane is not None:
            job.lane.abandon(job)
        elif job in self._waiting:
            self._waiting.remove(job)
            self._place()

    def has(self, signature: Digest) -> bool:
        """Whether attempts of a signature would find a lane."""
        lane = self._lanes.get(signature)
        return lane is not None and lane.state != "closing"

    def hold_open(self, signatures: Iterable[Digest]) -> None:
        """Spares lanes of these signatures from now on, and no others."""
        self._held_open = frozenset(signatures)

    def open_ahead(
        self,
        opening: PrewarmSpec,
        components: Mapping[str, HostInput],
        needed: Collection[Digest] = (),
    ) -> bool:
        """Opens a lane that no attempt has asked for, unless there is one.

        Args:
            opening: what the host is to be.
            components: what it loads, on the local disk, by port.
            needed: signatures of attempts that are still to ask for a lane: theirs stay open.

        Returns:
            Whether there is a lane now. Where there is not, ask again when a lane or an attempt has
            moved: attempts wait for a lane, or memory is short and some may be about to be free.

        Raises:
            OSError: there is no place for the host's files.
        """
        if opening.signature in self._lanes:
            return self.has(opening.signature)
        if self._waiting:
            return False
        if self._new_lane(opening.signature, opening, components, opening.mixed) is None:
            self._make_room_ahead(opening, needed)
            return False
        return True

    def too_large(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Why a host can never be open here, or None where it can."""
        devices = self._devices(wanted)
        if self._budget.can_ever(wanted.memory_mib, devices):
            return None
        return FailureReport(
            FailureKind.OUT_OF_MEMORY.value,
            f"{wanted.engine} needs {wanted.memory_mib} MiB on {max(1, devices)} device(s); "
            f"this worker has {self._budget.total_mib(devices)} MiB",
            "use a pool with more memory, or a smaller model",
        )

    async def close(self, within_s: float) -> None:
        """Ends all hosts: idle ones in peace, others at once after a while."""
        await self.prepared.close()
        for lane in self:
            lane.close()
        try:
            await asyncio.wait_for(self._empty.wait(), within_s)
        except TimeoutError:
            for lane in self:
                lane.process.kill()
            await self._empty.wait()

    @property
    def _busy(self) -> bool:
        """Whether an engine loads, or an attempt waits for the memory to."""
        loading = ("starting", "loading")
        return bool(self._waiting) or any(one.state in loading for one in self._lanes.values())

    def _devices(self, wanted: Assignment | PrewarmSpec) -> int:
        return self._engines.devices(wanted.engine, wanted.tensor_parallel)

    def _place(self) -> None:
        """Gives waiting jobs a lane in the order they came, making room where it is needed."""
        while self._waiting:
            job = self._waiting[0]
            lane = self._lanes.get(_key(job))
            if lane is not None and lane.state == "closing":
                return  # its memory is about to be free; _changed comes back here
            if lane is None:
                a = job.assignment
                mixed = tuple(p for p in a.components if p not in job.components)
                lane = self._new_lane(_key(job), a, job.components, mixed)
                if lane is None:
                    self._make_room()
                    return
                lane.isolated_for = a.attempt_id if a.isolate else ""
            self._waiting.pop(0)
            lane.submit(job)

    def _new_lane(
        self,
        key: str,
        wanted: Assignment | PrewarmSpec,
        components: Mapping[str, HostInput],
        mixed: tuple[str, ...],
    ) -> EngineInstance | None:
        reservation = self._reserve(wanted)
        if reservation is None:
            return None
        prepared = self.prepared.take(wanted)
        try:
            scratch = prepared.folder if prepared else self._new_folder()
        except OSError:
            self._budget.release(reservation)
            raise
        threads = self._engines.threads(wanted.engine, self._cpus)
        start = Start(
            engine=wanted.engine,
            loads=self._engines.loads(wanted.engine),
            components=dict(components),
            devices=reservation.devices,
            memory_mib=wanted.memory_mib,
            threads=threads,
            signature_params=wanted.signature_params,
            scratch=str(scratch),
            mixed=mixed,
        )
        lane = EngineInstance(
            start,
            wanted.signature,
            reservation,
            scratch,
            self._oom_kills,
            self._changed,
            self.submit,
            prepared.process if prepared else None,
        )
        self._lanes[key] = lane
        self._empty.clear()
        environment = host_environment(os.environ, threads) | {"TMPDIR": str(scratch)}
        task = asyncio.get_running_loop().create_task(lane.open(environment))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return lane

    def _new_folder(self) -> Path:
        """Where a host may write.

        Raises:
            OSError: there is no place for it.
        """
        self._count += 1
        folder = self._scratch / f"host-{self._count}"
        folder.mkdir(parents=True)
        return folder

    def _reserve(self, wanted: Assignment | PrewarmSpec) -> Reservation | None:
        """Sets memory aside; hosts that nothing runs in yet give way to one that is needed."""
        devices = self._devices(wanted)
        reservation = self._budget.reserve(wanted.memory_mib, devices)
        if reservation is not None:
            return reservation
        if not self._budget.suffices(wanted.memory_mib, devices, self.prepared.reserved):
            return None
        self.prepared.give_way()
        return self._budget.reserve(wanted.memory_mib, devices)

    def _make_room(self) -> None:
        idle = self._closable()
        if idle:
            min(idle, key=lambda x: (x.signature in self._held_open, x.last_used_s)).close()

    def _make_room_ahead(self, opening: PrewarmSpec, needed: Collection[Digest]) -> None:
        kept = {*self._held_open, *needed}
        idle = [lane for lane in self._closable() if lane.signature not in kept]
        freed = [*self.prepared.reserved, *(lane.reservation for lane in idle)]
        if idle and self._budget.suffices(opening.memory_mib, self._devices(opening), freed):
            min(idle, key=lambda lane: lane.last_used_s).close()

    def _closable(self) -> list[EngineInstance]:
        """Idle lanes; none while one is closing, whose memory may be enough."""
        if any(lane.state == "closing" for lane in self._lanes.values()):
            return []
        return [lane for lane in self._lanes.values() if lane.idle]

    def _changed(self, lane: EngineInstance) -> None:
        if lane.gone:
            self._forget(lane)
        elif lane.isolated_for and lane.idle:
            lane.close()
        self._report_change(lane)
        self.prepared.go_on()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._place)

    def _forget(self, lane: EngineInstance) -> None:
        key = lane.isolated_for or lane.signature
        if self._lanes.get(key) is lane:
            del self._lanes[key]
            self._budget.release(lane.reservation)
            remove_host_folder(lane.scratch)
        if not self._lanes:
            self._empty.set()


def _key(job: AttemptJob) -> str:
    return job.assignment.attempt_id if job.assignment.isolate else job.assignment.signature
