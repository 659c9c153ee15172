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

"Idle" means loaded, not pinned, without work and without files that are being stored. The memory of
a pinned instance stays reserved when its host dies (ADR 51). One instance closes at a
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
from flowmesh_core.worker_agent.events import AttemptFinished, HostExited, HostLoaded
from flowmesh_core.worker_agent.instructions import CloseHost, KillHost, ReleaseFiles, StartHost
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.pinned_memory import PinnedMemory
from flowmesh_core.worker_agent.ports import EngineFacts
from flowmesh_core.worker_agent.reports import Reports, figure
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
    """

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        facts: EngineFacts,
        memory: MemoryBudget,
        standby: StandbyHosts,
        reports: Reports,
    ) -> None:
        self._state = state
        self._out = out
        self._facts = facts
        self._memory = memory
        self._standby = standby
        self._reports = reports
        self.prewarmed: Collection[Digest] = ()
        self.pinned = PinnedMemory(memory)

    @property
    def busy(self) -> bool:
        """Whether an engine loads, or an attempt waits for memory to load one."""
        loading = (InstanceState.STARTING, InstanceState.LOADING)
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
        return instance if instance and instance.state is not InstanceState.CLOSING else None

    def place(self, attempt: Attempt) -> Instance | None:
        """Finds or starts an instance for the attempt that waits first.

        Returns:
            The instance; None while memory is short. Then one idle instance may have been closed.
        """
        key = attempt.instance_key
        instance = self._state.instances.get(key)
        if instance is not None:
            # A closing instance frees its memory soon; then a new one is started.
            return None if instance.state is InstanceState.CLOSING else instance
        if self.pinned.waits:
            return None
        instance = self._start(key, attempt.assignment)
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
            one that is closing), or if memory is short.
        """
        if self._state.waiting or spec.signature in self._state.instances:
            return False
        if self._start(spec.signature, spec) is not None:
            return True
        self._free_memory_ahead(spec, needed)
        return False

    def open_pinned(self, spec: PrewarmSpec) -> bool:
        """Starts an instance for replicas; they do not wait for attempts that wait for memory.

        Returns:
            False if there is an instance of the signature, or if memory is short.
        """
        if spec.signature in self._state.instances:
            return False
        if self._start(spec.signature, spec) is not None:
            return True
        closed = self._needed(self._idle_by_use(), spec)
        if closed:
            self._close(closed[0])
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
        closed = self._needed(idle, attempt.assignment)
        if not closed and self._out.now_s - attempt.queued_s >= STARVED_S:
            on_devices = self._devices(attempt.assignment) > 0
            closed = [i for i in idle if bool(i.reservation.devices) is on_devices]
        if closed:
            self._close(closed[0])

    def _idle_by_use(self) -> list[Instance]:
        return sorted(
            self._closable(), key=lambda i: (i.signature in self.prewarmed, i.last_used_s)
        )

    def _free_memory_ahead(self, spec: PrewarmSpec, needed: Collection[Digest]) -> None:
        spared = {*self.prewarmed, *needed}
        idle = [i for i in self._closable() if i.signature not in spared]
        closed = self._needed(sorted(idle, key=lambda i: i.last_used_s), spec)
        if closed:
            self._close(closed[0])

    def _needed(self, idle: list[Instance], wanted: Assignment | PrewarmSpec) -> list[Instance]:
        """Returns the instances that must close; none if closing all would not suffice.

        Args:
            idle: candidates, the first to close first.
            wanted: what needs the memory.
        """
        devices = self._devices(wanted)

        def suffice(closed: list[Instance]) -> bool:
            freed = [*self._standby.reservations, *self.pinned.of(_key(wanted))]
            freed += (i.reservation for i in closed)
            return self._memory.suffices(wanted.memory_mib, devices, freed)

        if not idle or not suffice(idle):
            return []
        # From the last to close on: drops each candidate that is not needed, such as one on
        # another device.
        for instance in reversed(idle):
            rest = [i for i in idle if i is not instance]
            if suffice(rest):
                idle = rest
        return idle

    def _closable(self) -> list[Instance]:
        """Returns idle instances; none while one closes, since its memory may be enough."""
        instances = self._state.instances.values()
        if any(i.state is InstanceState.CLOSING for i in instances):
            return []
        return [i for i in instances if i.idle]

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
        instance.move(InstanceState.GONE)
        instance.retained.clear()
        del self._state.instances[instance.key], self._state.by_id[instance.id]
        self.pinned.host_ended(instance.key, instance.reservation)
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
            if instance.idle:
                self._close(instance)
            else:
                self.kill(instance, _REVOKED)

    def measured(self, instance: Instance, used_mib: int) -> None:
        """Records the memory of a host; kills a CPU host that exceeds its reservation."""
        for attempt in instance.running.values():
            attempt.peak_memory_mib = max(attempt.peak_memory_mib, used_mib)
        reserved = instance.reservation.memory_mib
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
        if instance.state is not InstanceState.READY:
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
        """Reports an instance that is new, changed or gone; if new or gone, components too."""
        before, instance.reported = instance.reported, instance.report()
        if instance.has_ended or before is None:
            self._reports.components_changed()
        if instance.has_ended or before != instance.reported:
            self._reports.instances_changed()
