"""Engine instances of a worker: one for each signature, loaded until their memory is needed.

The machine calls it with attempts that wait for memory, with prewarm entries that are fetched, and
with what happens to hosts. An attempt whose signature has an instance joins its queue; any other
needs memory for a new one. What may be closed to free memory:

| for | may be closed | in this order | only if |
| --- | --- | --- | --- |
| the attempt that waits first | standby hosts that reserve memory | all together | with their \
memory there is enough |
| the attempt that waits first | idle instances | not on the prewarm list first, then least \
recently used | no instance is closing; closing all of them is enough, closing all but this one is \
not |
| the same, after 60 s of waiting | idle instances on devices if it needs devices, else on the \
CPU | as above | no instance is closing |
| a prewarm entry | standby hosts that reserve memory | all together | no attempt waits; with \
their memory there is enough |
| a prewarm entry | idle instances that are not on the list, of signatures of which no attempt \
fetches inputs | least recently used | as for an attempt, and no attempt waits |
| a replica of a service | the same as for an attempt, also while attempts wait | not on the \
prewarm list first, then least recently used | as for an attempt |
| an isolated attempt | its own instance | | the attempt has ended and nothing reads its files |

An instance that may be closed falls asleep instead if its engine can sleep, what it leaves behind
is enough, and there is host memory for its weights; for that, those that fell asleep first are
closed (``sleep``). Where all idle instances asleep would not be enough, instances that are asleep
may be closed too, before idle ones, the one that fell asleep first at first.

"Idle" means loaded, not pinned or killed, without work and without files that are being stored.
The memory of a pinned instance stays reserved when its host dies (ADR 51). One instance closes at a
time; the table is applied anew when it is gone, and whenever another becomes idle.

Closing the least recently used instance until the memory suffices would be simpler. It closes
instances for nothing while busy ones hold the rest
(``test_nothing_is_closed_while_busy_instances_hold_what_an_attempt_needs``) and instances on the
wrong device (``test_an_instance_that_would_not_help_is_not_closed``), and each of them then loads
again. But instances that are idle in turn may never suffice at one moment, while attempts for them
go on coming. So an attempt that has waited for 60 s gets each one that becomes idle
(``test_an_attempt_that_has_waited_for_a_minute_gets_the_next_idle_memory``).
"""

import heapq
from collections.abc import Collection
from collections.abc import Set as AbstractSet

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import (
    AttemptFinished,
    HostAwake,
    HostExited,
    HostLoaded,
)
from flowmesh_core.worker_agent.instructions import CloseHost, KillHost, ReleaseFiles, StartHost
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget, Reservation
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.pinned_memory import PinnedMemory
from flowmesh_core.worker_agent.ports import EngineFacts
from flowmesh_core.worker_agent.reports import Reports, figure
from flowmesh_core.worker_agent.sleep import SETTLED_S, SleepingInstances, hangs
from flowmesh_core.worker_agent.standby import StandbyHosts
from flowmesh_core.worker_agent.state import AgentState, Attempt, Instance
from flowmesh_core.worker_agent.transitions import InstanceState

CAPACITY_MAX = 1 << 20
"""No engine runs more attempts at once; the protocol has no larger number."""
CLOSE_WITHIN_S = 10.0
LOAD_MAX_S = 1e9
STARVED_S = 60.0
"""After this wait an attempt gets the memory of each instance that becomes idle."""
OVERUSE = 1.25
"""A host may exceed its reservation by a quarter before it is killed."""
SILENT_MAX_S = 120.0
"""A host without a heartbeat for this long is killed: a stopped process would be paid forever."""


_REVOKED = FailureReport(
    FailureKind.PREEMPTED.value, "its engine host had loaded a model that was revoked"
)


Step = tuple[Instance, Reservation | None]
"""An idle instance, and what it still reserves once it is asleep; None where it is closed."""


def _components(wanted: Assignment | PrewarmSpec) -> list[Digest]:
    """Returns the identities of the models and adapters that a host is given."""
    if isinstance(wanted, PrewarmSpec):
        return [artifact.digest for artifact in wanted.components.values()]
    given = (wanted.inputs.get(port) for port in wanted.components)
    return [one.artifact.digest for one in given if one is not None]


def _key(wanted: Assignment | PrewarmSpec) -> str:
    """Returns the key of the instance that this needs."""
    if isinstance(wanted, Assignment) and wanted.isolate:
        return wanted.attempt_id
    return wanted.signature


class Instances:
    """Starts and closes engine instances, and hands attempts to their hosts.

    Attributes:
        prewarmed: signatures of the prewarm list; their idle instances are closed last.
        pinned: the memory of replicas of services.
        sleeping: those that are asleep.
    """

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        facts: EngineFacts,
        memory: MemoryBudget,
        standby: StandbyHosts,
        reports: Reports,
        *,
        sleep_mib: int,
        asleep_device_mib: int,
    ) -> None:
        self._state = state
        self._out = out
        self._facts = facts
        self._memory = memory
        self._standby = standby
        self._reports = reports
        self.prewarmed: Collection[Digest] = ()
        self.pinned = PinnedMemory(memory)
        self.sleeping = SleepingInstances(
            state,
            out,
            memory,
            limit_mib=sleep_mib,
            device_mib=asleep_device_mib,
        )

    @property
    def busy(self) -> bool:
        """Whether an engine loads, or an attempt waits for memory to load one."""
        loading = (InstanceState.STARTING, InstanceState.LOADING, InstanceState.WAKING)
        return bool(self._state.waiting) or any(
            instance.state in loading for instance in self._state.instances.values()
        )

    # -- starting --------------------------------------------------------------------------------

    def too_large(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Returns why even an empty worker lacks the memory; None if it has enough."""
        devices = self._devices(wanted)
        if self._memory.can_ever(wanted.memory_mib, devices):
            return None
        return FailureReport(
            FailureKind.OUT_OF_MEMORY.value,
            f"{wanted.engine} needs {wanted.memory_mib} MiB on {max(1, devices)} device(s); "
            f"this worker has {self._memory.total_mib(devices)} MiB",
            "use a pool with more memory, or a smaller model",
        )

    def find(self, attempt: Attempt) -> Instance | None:
        """Returns the instance whose queue the attempt may join; None if there is none."""
        instance = self._state.instances.get(attempt.instance_key)
        return instance if instance and instance.takes_attempts else None

    def place(self, attempt: Attempt) -> Instance | None:
        """Finds, wakes or starts an instance for the attempt that waits first.

        Returns:
            The instance; None while memory is short. Then one idle instance may close or fall
            asleep.
        """
        key = attempt.instance_key
        if not self._may_open(key):
            # A closing instance frees its memory soon; then a new one is started.
            return self.find(attempt)
        if self.pinned.waits:
            return None
        instance = self._open(key, attempt.assignment)
        if instance is None:
            self._free_memory(attempt)
            return None
        instance.isolated_for = attempt.id if attempt.assignment.isolate else ""
        return instance

    def prewarm(self, spec: PrewarmSpec, needed: Collection[Digest]) -> bool:
        """Starts an instance for an entry of the prewarm list.

        Args:
            spec: what the host loads.
            needed: signatures of attempts that fetch inputs and will need their instance soon.

        Returns:
            False if an attempt waits for memory, if there is an instance of the signature (also
            one that is closing) that is not asleep, or if memory is short.
        """
        if self._state.waiting or not self._may_open(spec.signature):
            return False
        if self._open(spec.signature, spec) is not None:
            return True
        self._free_memory_ahead(spec, needed)
        return False

    def open_pinned(self, spec: PrewarmSpec) -> bool:
        """Starts an instance for replicas; they do not wait for attempts that wait for memory.

        Returns:
            False if there is an instance of the signature that is not asleep, or if memory is
            short.
        """
        if not self._may_open(spec.signature):
            return False
        if self._open(spec.signature, spec) is not None:
            return True
        self._free_idle_memory(self._idle_by_use(), spec)
        return False

    def too_large_beside_pinned(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Returns why the memory will not suffice while what is pinned stays; else None."""
        freed = [*self._standby.reservations, *self.pinned.of(_key(wanted))]
        for instance in self._state.instances.values():
            pinned = instance.calls or instance.key in self.pinned.signatures
            if instance.key == _key(wanted) or not pinned:
                freed.append(instance.reservation)
        if self._memory.suffices(wanted.memory_mib, self._devices(wanted), freed):
            return None
        return FailureReport(
            FailureKind.DRAINED.value,
            f"{wanted.engine} needs {wanted.memory_mib} MiB, and replicas of services have reserved"
            " the memory of this worker",
            "use another worker, or give the services fewer replicas",
        )

    def _devices(self, wanted: Assignment | PrewarmSpec) -> int:
        return self._facts.devices(wanted.engine, wanted.tensor_parallel)

    def _may_open(self, key: str) -> bool:
        """Whether an instance of this key may be started or woken: there is none, or it sleeps."""
        instance = self._state.instances.get(key)
        if instance is None:
            return True
        return instance.state is InstanceState.ASLEEP and not instance.killed

    def _open(self, key: str, wanted: Assignment | PrewarmSpec) -> Instance | None:
        """Wakes the instance that is asleep, or starts one; returns None while memory is short."""
        instance = self._state.instances.get(key)
        if instance is None:
            return self._start(key, wanted)
        if instance.awake.memory_mib != wanted.memory_mib:
            self._close(instance)  # a new one is started, of the size that is wanted now
            return None
        woken, released = self.sleeping.woken(instance), [instance.reservation]
        if not self._memory.fits(woken, [*released, *self._standby.reservations]):
            return None
        if not self._memory.fits(woken, released):
            self._standby.release_memory()
        self.sleeping.wake(instance)
        self.pinned.started(key)
        self.changed(instance)
        return instance

    def _start(self, key: str, wanted: Assignment | PrewarmSpec) -> Instance | None:
        devices = self._devices(wanted)
        freed = [*self._standby.reservations, *self.pinned.of(key)]
        if not self._memory.suffices(wanted.memory_mib, devices, freed):
            return None
        self.pinned.release(key)
        # Its own standby host becomes part of the instance. Often the memory of that one suffices,
        # and the other standby hosts can stay.
        standby = self._standby.take(wanted)
        reservation = self._memory.reserve(wanted.memory_mib, devices)
        if reservation is None:
            self._standby.release_memory()
            reservation = self._memory.reserve(wanted.memory_mib, devices)
            assert reservation is not None, "the memory of all standby hosts is enough"
        instance = Instance(
            next(self._state.numbers),
            key,
            wanted.signature,
            wanted.engine,
            reservation,
            self._out.now_s,
        )
        instance.components.update(_components(wanted))
        self._state.instances[key] = self._state.by_id[instance.id] = instance
        self.pinned.started(key)
        standby_id = standby.id if standby is not None else None
        self._out.add(StartHost(instance.id, wanted, reservation, standby_id))
        return instance

    # -- freeing memory --------------------------------------------------------------------------

    def _free_memory(self, attempt: Attempt) -> None:
        idle = self._idle_by_use()
        if self._free_idle_memory(idle, attempt.assignment):
            return
        if self._out.now_s - attempt.queued_s >= STARVED_S:
            on_devices = self._devices(attempt.assignment) > 0
            for instance in idle:
                if bool(instance.reservation.devices) is on_devices:
                    self._retire((instance, self.sleeping.asleep(instance)), attempt.instance_key)
                    return

    def _idle_by_use(self) -> list[Instance]:
        return sorted(
            self._closable(), key=lambda i: (i.signature in self.prewarmed, i.last_used_s)
        )

    def _free_memory_ahead(self, spec: PrewarmSpec, needed: Collection[Digest]) -> None:
        """Frees memory before there is work for it; nothing that is asleep is closed for that."""
        spared = {*self.prewarmed, *needed}
        idle = [i for i in self._closable() if i.signature not in spared]
        self._free_idle_memory(sorted(idle, key=lambda i: i.last_used_s), spec, closes_asleep=False)

    def _free_idle_memory(
        self,
        idle: list[Instance],
        wanted: Assignment | PrewarmSpec,
        *,
        closes_asleep: bool = True,
    ) -> bool:
        """Has the first of the instances sleep or close that must, so that work gets memory.

        Args:
            idle: those that may, the first to go first.
            wanted: what needs the memory.
            closes_asleep: whether instances that are asleep may be closed, or closed in place of
                falling asleep, where that alone frees enough.

        Returns:
            Whether one does.
        """
        key = _key(wanted)
        needed = self._needed([(i, self.sleeping.asleep(i)) for i in idle], wanted)
        if not needed and closes_asleep and self._frees():
            asleep = [i for i in self.sleeping.oldest_first() if i.key != key]
            closed = [*asleep, *idle]
            needed = self._needed([(i, None) for i in closed], wanted) or self._own(wanted, closed)
        if needed:
            self._retire(needed[0], key)
        return bool(needed)

    def _needed(self, steps: list[Step], wanted: Assignment | PrewarmSpec) -> list[Step]:
        """Returns the instances that must sleep or close; none if all of them would not suffice.

        Args:
            steps: candidates, the first to go first.
            wanted: what needs the memory.
        """
        if not steps or not self._suffice(steps, wanted):
            return []
        # From the last to go on: drops each candidate that is not needed, such as one on another
        # device.
        for step in reversed(steps):
            rest = [one for one in steps if one is not step]
            if self._suffice(rest, wanted):
                steps = rest
        return steps

    def _suffice(self, steps: list[Step], wanted: Assignment | PrewarmSpec) -> bool:
        key, devices = _key(wanted), self._devices(wanted)
        freed = [*self._standby.reservations, *self.pinned.of(key)]
        freed += (instance.reservation for instance, _ in steps)
        left = [asleep for _, asleep in steps if asleep is not None]
        own = self._state.instances.get(key)
        if own is None:
            return self._memory.suffices(wanted.memory_mib, devices, freed, left)
        return self._memory.fits(self.sleeping.woken(own), [*freed, own.reservation], left)

    def _own(self, wanted: Assignment | PrewarmSpec, closed: list[Instance]) -> list[Step]:
        """Returns the instance that is asleep, if a new one would find memory elsewhere.

        Others hold the memory of its devices, and those of other devices can be freed.
        """
        own = self._state.instances.get(_key(wanted))
        if own is None or own.state is not InstanceState.ASLEEP:
            return []
        freed = [*self._standby.reservations, *(i.reservation for i in (own, *closed))]
        found = self._memory.suffices(wanted.memory_mib, self._devices(wanted), freed)
        return [(own, None)] if found else []

    def _frees(self) -> bool:
        """Whether no instance is about to free memory, which may be enough."""
        freeing = (InstanceState.CLOSING, InstanceState.FALLING_ASLEEP)
        return not any(i.killed or i.state in freeing for i in self._state.instances.values())

    def _closable(self) -> list[Instance]:
        """Returns idle instances that are not pinned; none while one closes or falls asleep."""
        if not self._frees():
            return []
        pinned = self.pinned.signatures
        return [i for i in self._state.instances.values() if i.idle and i.key not in pinned]

    def _retire(self, step: Step, spared: str) -> None:
        """Has an instance sleep if it may, and there is host memory; closes it otherwise.

        Args:
            step: the instance.
            spared: key of the instance for which there must be room.
        """
        instance, asleep = step
        if asleep is not None:
            if self.sleeping.begin(instance):
                self.changed(instance)
                return
            instance = self.sleeping.in_the_way(instance, spared) or instance
        self._close(instance)

    def _close(self, instance: Instance) -> None:
        instance.move(InstanceState.CLOSING)
        self._out.add(CloseHost(instance.id, CLOSE_WITHIN_S))
        self.changed(instance)

    # -- hosts -----------------------------------------------------------------------------------

    def get(self, instance_id: int) -> Instance | None:
        """Returns an instance by number; None once it is gone."""
        return self._state.by_id.get(instance_id)

    def started(self, instance: Instance) -> None:
        """Records that the host's process runs and loads."""
        if instance.state is InstanceState.STARTING:
            instance.move(InstanceState.LOADING)
            self.changed(instance)

    def loaded(self, instance: Instance, event: HostLoaded) -> None:
        """Records that the engine is loaded and takes attempts."""
        if instance.state is InstanceState.STARTING:
            instance.move(InstanceState.LOADING)
        instance.move(InstanceState.READY)
        instance.has_loaded = True
        instance.capacity = min(max(1, event.capacity), CAPACITY_MAX)
        instance.load_s = min(figure(event.load_s), LOAD_MAX_S)
        instance.libraries = event.libraries
        instance.asleep_mib = max(0, event.asleep_mib)

    def fell_asleep(self, instance: Instance) -> None:
        """Records that an instance has freed its device's memory."""
        self.sleeping.fell_asleep(instance)
        self.changed(instance)

    def awake(self, instance: Instance, event: HostAwake) -> None:
        """Records that an instance takes attempts again."""
        self.sleeping.awake(instance, event)

    def sleep_failed(self, instance: Instance, failure: FailureReport) -> None:
        """Ends a host that could not fall asleep, or could not wake; others wait for none."""
        if instance.state is InstanceState.FALLING_ASLEEP:
            self.sleeping.failed(instance)
            self._close(instance)
        elif instance.state is InstanceState.WAKING:
            self.sleeping.failed(instance)
            self.kill(instance, failure)

    def sleep_hangs(self, instance_id: str) -> None:
        """Ends a host that takes too long to fall asleep, or to wake."""
        instance = self.get(int(instance_id))
        if instance is not None:
            self.sleep_failed(instance, hangs(instance))

    def exited(self, instance: Instance, event: HostExited) -> FailureReport:
        """Frees the memory of a host that has exited, or retains it for a pinned signature.

        Returns:
            The failure of its attempts.
        """
        failure = instance.ending or event.failure
        if not failure.detail:
            failure = FailureReport(
                failure.kind, failure.message, failure.remedy, instance.last_lines()
            )
        if instance.state is not InstanceState.CLOSING:
            instance.failure = failure
        self.sleeping.ended(instance)
        instance.move(InstanceState.GONE)
        instance.retained.clear()
        del self._state.instances[instance.key], self._state.by_id[instance.id]
        self._memory.release(instance.reservation)
        if instance.reservation.memory_mib == instance.awake.memory_mib:
            self._memory.take(instance.awake)
            self.pinned.host_ended(instance.key, instance.awake)
        self.changed(instance)
        return failure

    def kill(self, instance: Instance, failure: FailureReport) -> None:
        """Ends a host at once; its attempts fail with the first failure that was given."""
        instance.ending = instance.ending or failure
        if not instance.killed:
            instance.killed = True
            self._out.add(KillHost(instance.id))

    def forget(self, revoked: AbstractSet[Digest]) -> None:
        """Ends the hosts that have a revoked component; other attempts in them run elsewhere."""
        for instance in list(self._state.instances.values()):
            if instance.state is InstanceState.CLOSING or revoked.isdisjoint(instance.components):
                continue
            if instance.idle or instance.state is InstanceState.ASLEEP:
                self._close(instance)
            else:
                self.kill(instance, _REVOKED)

    def measured(self, instance: Instance, used_mib: int) -> None:
        """Records the memory of a host; kills a CPU host that exceeds its reservation."""
        for attempt in instance.running.values():
            attempt.peak_memory_mib = max(attempt.peak_memory_mib, used_mib)
        reserved = instance.reservation.memory_mib
        since_s = self._out.now_s - instance.asleep_since_s
        if instance.state is InstanceState.ASLEEP and since_s < SETTLED_S:
            return
        if instance.reservation.devices or not reserved or used_mib <= reserved * OVERUSE:
            return
        self.kill(
            instance,
            FailureReport(
                FailureKind.OUT_OF_MEMORY.value,
                f"the host of {instance.engine} used {used_mib} MiB where {reserved} MiB were "
                "reserved",
                "ask for more with resources.memory, or give it less at once",
            ),
        )

    def silent(self, instance: Instance, silent_s: float) -> None:
        """Records how long a host has sent no heartbeat; kills it after ``SILENT_MAX_S``."""
        instance.silent_s = silent_s
        self._report(instance)
        if silent_s > SILENT_MAX_S:
            self.kill(
                instance,
                FailureReport(
                    FailureKind.HOST_CRASHED.value,
                    f"the host of {instance.engine} stood still: no heartbeat for {silent_s:.0f} s",
                    detail=instance.last_lines(),
                ),
            )

    # -- queues ----------------------------------------------------------------------------------

    def enqueue(self, instance: Instance, attempt: Attempt) -> None:
        """Puts an attempt into the queue of an instance."""
        attempt.instance = instance
        instance.components.update(_components(attempt.assignment))
        attempt.first_line = instance.lines_seen
        instance.last_used_s = self._out.now_s
        heapq.heappush(instance.queue, (-attempt.assignment.priority, attempt.serial, attempt))

    def dequeue(self, instance: Instance) -> Attempt | None:
        """Removes and returns the next attempt to run; None if the host has no free place."""
        if instance.state is not InstanceState.READY or instance.killed:
            return None
        while instance.queue and len(instance.running) < instance.capacity:
            attempt = heapq.heappop(instance.queue)[2]
            if attempt.ended:
                continue
            if not instance.running:  # lines printed before belong to other tenants' attempts
                attempt.first_line = max(attempt.first_line, instance.lines_ended)
            instance.running[attempt.id] = attempt
            instance.has_run = True
            return attempt
        return None

    def finish(self, instance: Instance, event: AttemptFinished) -> Attempt | None:
        """Records that the host has ended an attempt; returns it unless it was stopped before."""
        attempt = instance.running.pop(event.attempt_id, None)
        instance.last_used_s = self._out.now_s
        if event.libraries is not None:
            instance.libraries = event.libraries
        if event.keeps_files:
            instance.retained.add(event.attempt_id)
        live = attempt if attempt is not None and not attempt.ended else None
        if live is not None:
            live.log = instance.last_lines(live.first_line)
            live.libraries = instance.libraries
        instance.lines_ended = instance.lines_seen
        if event.keeps_files and live is None:
            self.release_files(instance, event.attempt_id)
        return live

    def release_files(self, instance: Instance, attempt_id: str) -> None:
        """Lets the host remove the files of an attempt; does nothing if it has none."""
        if attempt_id in instance.retained:
            instance.retained.discard(attempt_id)
            self._out.add(ReleaseFiles(instance.id, attempt_id))
            if not instance.running:
                self.changed(instance)

    def changed(self, instance: Instance) -> None:
        """Reports a change; closes an idle instance whose isolated attempt has ended."""
        self._report(instance)
        if instance.isolated_for and instance.idle:
            self._close(instance)

    def _report(self, instance: Instance) -> None:
        """Reports an instance that is new, changed or gone; components too, if their tier is."""
        before, instance.reported = instance.reported, instance.report()
        if instance.has_ended or before is None or before.asleep != instance.reported.asleep:
            self._reports.components_changed()
        if instance.has_ended or before != instance.reported:
            self._reports.instances_changed()
