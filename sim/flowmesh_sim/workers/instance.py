"""A simulated engine host: starts, loads, runs attempts side by side, and exits.

It models what takes time, memory and power. The worker agent decides what it runs and when it
closes.
"""

from collections.abc import Sequence
from typing import Protocol

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import (
    AttemptFinished,
    AttemptProgressed,
    AttemptUsage,
    CheckpointStored,
    Event,
    HostAsleep,
    HostAwake,
    HostExited,
    HostLoaded,
    HostLoadFailed,
    HostStarted,
)
from flowmesh_core.worker_agent.memory_reservations import Reservation
from flowmesh_core.worker_agent.transitions import InstanceState
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.models.devices import Device, LanguageModel
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.models.work_model import TRAINING
from flowmesh_sim.workers.batch import Batch, SimJob
from flowmesh_sim.workers.checkpoints import write_checkpoint

OOM_AFTER_S = 2.0
"""An attempt that needs more memory than its instance has runs out of it after this time."""
MOVES_WEIGHTS = (InstanceState.LOADING, InstanceState.FALLING_ASLEEP, InstanceState.WAKING)
"""States in which a host moves weights: a device then draws more than at rest."""
_ENDED = FailureReport(FailureKind.HOST_CRASHED.value, "the host ended")
_CANCELLED = FailureReport(FailureKind.CANCELLED.value, "the attempt was stopped")
_HANDED_BACK = FailureReport(
    FailureKind.DRAINED.value, "stopped between two steps, as its worker leaves"
)


class InstanceOwner(Protocol):
    """The part of the worker that an instance uses."""

    @property
    def engine(self) -> Environment:
        """Virtual time."""
        ...

    def changed(self) -> None:
        """Notes that load or power has changed: the next ``post`` plans all instances anew."""
        ...

    def post(self, *events: Event) -> None:
        """Gives events to the worker agent."""
        ...

    def finished(self, instance: "SimInstance", jobs: Sequence[SimJob]) -> None:
        """Handles jobs that have done all their work."""
        ...


class SimInstance:
    """One host. Its state is the actual one; the worker agent learns of it by events.

    Attributes:
        on: devices that it owns; none for a host on the CPU.
        loaded: components in its memory.
        asleep_mib: host memory that it takes while it is asleep; 0 if it cannot sleep.
        weights_bytes: of its model.
        has_slept: whether it has ever been asleep.
        batch: the jobs that run; ``running`` has them by attempt id.
    """

    def __init__(
        self,
        owner: InstanceOwner,
        store: SimStore,
        instance_id: int,
        engine: str,
        reservation: Reservation,
        *,
        device: Device,
        model: LanguageModel | None,
        capacity: int,
    ) -> None:
        """Starts nothing yet.

        Args:
            owner: its worker.
            store: where checkpoints go.
            instance_id: in its events.
            engine: its name.
            reservation: memory, and devices.
            device: the class of device.
            model: the one that it loads; None for an engine without a model.
            capacity: attempts at once.
        """
        self._owner = owner
        self._store = store
        self.id = instance_id
        self.name = engine
        self._device = device
        self.on = reservation.devices
        self.memory_mib = reservation.memory_mib
        self.capacity = capacity
        self.loaded: tuple[Digest, ...] = ()
        self.asleep_mib = self.weights_bytes = 0
        self.has_slept = False
        self.state = InstanceState.STARTING
        memory_mib = self.memory_mib * max(1, len(self.on))
        self.batch = Batch(owner.engine, device, model, memory_mib, self._finished)
        self.running = self.batch.running
        self._start: Timer | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.state is InstanceState.GONE

    # -- life ------------------------------------------------------------------------------------

    def start(self, start_s: float, load_s: float, loaded: tuple[Digest, ...]) -> None:
        """Starts the process, which loads and is then ready."""
        self.loaded = loaded
        self._start = self._owner.engine.after(start_s, self._load, start_s, load_s)

    def refuse(self, after_s: float, failure: FailureReport) -> None:
        """Fails the load after ``after_s``; the process exits then."""
        self._owner.engine.after(after_s, self._refused, failure)

    def _load(self, start_s: float, load_s: float) -> None:
        self.state = InstanceState.LOADING
        self._owner.changed()
        self._start = self._owner.engine.after(load_s, self._ready, start_s + load_s)
        self._owner.post(HostStarted(self.id))

    def _ready(self, took_s: float) -> None:
        self.state = InstanceState.READY
        self._owner.changed()
        self._owner.post(HostLoaded(self.id, self.capacity, took_s, {}, self.asleep_mib))

    def sleep(self, sleep_s: float) -> None:
        """Moves the weights to host memory; the device is free after ``sleep_s``."""
        assert not self.running, f"{self.name} is put asleep while attempts run in it"
        self.state = InstanceState.FALLING_ASLEEP
        self._owner.changed()
        self._start = self._owner.engine.after(sleep_s, self._asleep)

    def wake(self, wake_s: float) -> None:
        """Moves the weights back; it takes attempts after ``wake_s``."""
        assert self.state is InstanceState.ASLEEP, f"{self.name} is woken and is {self.state.value}"
        self.state = InstanceState.WAKING
        self._owner.changed()
        self._start = self._owner.engine.after(wake_s, self._awake, wake_s)

    def _asleep(self) -> None:
        self.state = InstanceState.ASLEEP
        self.has_slept = True
        self._owner.changed()
        self._owner.post(HostAsleep(self.id))

    def _awake(self, took_s: float) -> None:
        self.state = InstanceState.READY
        self._owner.changed()
        self._owner.post(HostAwake(self.id, took_s))

    def _refused(self, failure: FailureReport) -> None:
        if not self.has_ended:
            self._owner.post(HostLoadFailed(self.id, failure))
            self.exit(failure)

    def close(self, unload_s: float) -> None:
        """Ends the host after the time that it takes to exit."""
        if not self.has_ended:
            cancel(self._start)  # it may fall asleep, or wake
            self.state = InstanceState.CLOSING
            self._owner.engine.after(unload_s, self.exit)

    def exit(self, failure: FailureReport = _ENDED) -> None:
        """Ends the host at once, with all that runs in it."""
        if not self.has_ended:
            self.stop()
            self._owner.post(HostExited(self.id, failure))

    def stop(self) -> None:
        """Ends the host without an event, as when its worker's process is gone."""
        self.batch.stop()
        self.state = InstanceState.GONE
        self._owner.changed()
        cancel(self._start)

    # -- attempts --------------------------------------------------------------------------------

    def run(self, job: SimJob) -> None:
        """Begins an attempt."""
        assert self.state is InstanceState.READY, f"an attempt runs in {self.name}, {self.state}"
        self.batch.add(job)
        self._owner.changed()
        if self.on and job.duty.peak_mib > self.memory_mib * len(self.on):
            self._owner.engine.after(OOM_AFTER_S, self._out_of_memory, job)
        self._next_checkpoint(job)

    def cancel(self, attempt_id: str) -> None:
        """Stops an attempt at once; does nothing for one that does not run."""
        job = self.running.get(attempt_id)
        if job is not None:
            self._end(job, _CANCELLED)

    def request_checkpoint(self, attempt_id: str) -> None:
        """Has an attempt write a checkpoint and end, if its engine can."""
        job = self.running.get(attempt_id)
        if job is not None and job.duty.ends_on_request:
            if job.duty.kind == TRAINING or job.duty.checkpoint_every:
                self._write_checkpoint(job)
            self._end(job, _HANDED_BACK)

    def watts(self) -> float:
        """Returns the device's power when this is alone on it."""
        if self.state in MOVES_WEIGHTS:
            return self._device.loading_w()
        facts = self._device.facts
        return self.batch.watts() or float(facts.context_w if self.loaded else facts.idle_w)

    def progress(self) -> list[Event]:
        """Returns progress events of all running attempts."""
        self.batch.advance()
        found: list[Event] = []
        for attempt_id, job in self.running.items():
            done = self.batch.done(job)
            units = int(job.duty.units * done)
            found.append(AttemptProgressed(self.id, attempt_id, units, done, 1.0, "share"))
        return found

    def _end(self, job: SimJob, failure: FailureReport) -> None:
        self.batch.remove(job)
        self._owner.changed()
        usage = AttemptUsage(run_s=self._owner.engine.now_s - job.sent_s)
        self._owner.post(AttemptFinished(self.id, job.attempt_id, failure, usage=usage))

    def _finished(self, jobs: list[SimJob]) -> None:
        self._owner.changed()
        self._owner.finished(self, jobs)

    def _out_of_memory(self, job: SimJob) -> None:
        if job.attempt_id in self.running:
            self.exit(
                FailureReport(
                    FailureKind.OUT_OF_MEMORY.value,
                    f"{self.name} needs {job.duty.peak_mib} MiB; its instance has "
                    f"{self.memory_mib} MiB",
                )
            )

    def _next_checkpoint(self, job: SimJob) -> None:
        every = job.duty.checkpoint_every
        if every:
            self._owner.engine.after(every * job.duty.steps, self._checkpoint, job)

    def _checkpoint(self, job: SimJob) -> None:
        if job.attempt_id in self.running:
            self._write_checkpoint(job)
            self._next_checkpoint(job)

    def _write_checkpoint(self, job: SimJob) -> None:
        self.batch.advance()
        done = self.batch.done(job)
        if done < 1.0 and not self._store.down:
            checkpoint = write_checkpoint(self._store, job.attempt_id, done)
            self._owner.post(CheckpointStored(checkpoint))
