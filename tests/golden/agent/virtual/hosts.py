"""The hosts of a virtual worker: what happens in them becomes events of the agent."""

from collections.abc import Callable, Iterator
from functools import partial

from tests.golden.agent.format import UNITS, Attempt, EffectKind, Fault, done_units
from tests.golden.agent.virtual.host import KILLED, Host
from tests.golden.agent.virtual.world import World, failure

from flowmesh_core.protocol.messages import Assignment, FailureReport
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instances import OVERUSE, SILENT_MAX_S
from flowmesh_core.worker_agent.instructions import StartHost, StartStandby
from flowmesh_worker.instances.oom import OomVictims

Post = Callable[[e.Event], None]
LACKING = FailureReport("engine", "an output is missing that the engine promises")


class StandbyHosts:
    """Hosts that import libraries."""

    def __init__(self, world: World, post: Post) -> None:
        self._world = world
        self._post = post
        self._hosts: dict[int, Host] = {}

    def start(self, instruction: StartStandby) -> None:
        """Starts a host."""
        host = Host(self._world, preload=instruction.preload)
        host.standby = self
        self._hosts[instruction.host_id] = host
        self._world.add(EffectKind.STANDBY_START, instruction.preload)
        host.start()

    def take(self, host_id: int) -> Host:
        """Gives a host away."""
        host = self._hosts.pop(host_id)
        host.standby = None
        return host

    def stop(self, host_id: int) -> None:
        """Ends a host; harmless once it is gone."""
        host = self._hosts.pop(host_id, None)
        if host is not None:
            host.kill()

    def close(self) -> list[Host]:
        """Ends all; returns them."""
        hosts = list(self._hosts.values())
        for host_id in list(self._hosts):
            self.stop(host_id)
        return hosts

    def crash(self, preload: str) -> None:
        """A host exits."""
        for host in list(self._hosts.values()):
            if host.preload == preload and host.is_started:
                host.exit(1)

    def started(self, host: Host) -> None:
        """See ``HostOwner``."""

    def prepared(self, host: Host, *, failed: bool) -> None:
        """See ``StandbyOwner``."""
        number = self._number(host)
        if number is None:
            return
        if failed:
            self._post(e.StandbyExited(number))
            self.stop(number)
            host.kill()
        else:
            self._post(e.StandbyReady(number))

    def not_started(self, host: Host) -> None:
        """See ``HostOwner``."""
        self.exited(host, 1)

    def exited(self, host: Host, code: int) -> None:
        """See ``HostOwner``."""
        number = self._number(host)
        if number is not None:
            del self._hosts[number]
            self._post(e.StandbyExited(number))

    def _number(self, host: Host) -> int | None:
        return next((n for n, one in self._hosts.items() if one is host), None)


class EngineHosts:
    """Hosts of engine instances.

    Attributes:
        ran_in: the host that each attempt last ran in.
    """

    def __init__(self, world: World, post: Post, checkpoint: Callable[[str, float], None]) -> None:
        self._world = world
        self._post = post
        self._checkpoint = checkpoint
        self._victims = OomVictims(world)
        self._hosts: dict[int, Host] = {}
        self._components: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.ran_in: dict[str, Host] = {}

    def start(self, instruction: StartHost, standby: Host | None) -> None:
        """Has a new host or a standby host load an engine."""
        number, wanted = instruction.instance_id, instruction.wanted
        reserved = instruction.reservation
        host = standby or Host(self._world, signature=wanted.signature)
        isolated = isinstance(wanted, Assignment) and wanted.isolate
        host.key = wanted.attempt_id if isolated else wanted.signature
        host.signature, host.engine = wanted.signature, self
        self._world.add(
            EffectKind.HOST_START,
            host.key,
            wanted.signature,
            reserved.memory_mib,
            reserved.devices,
            host.preload,
        )
        self._hosts[number] = host
        tier = "device" if reserved.devices else "host"
        self._components[number] = (tier, self._world.loaded_components(wanted))
        self._victims.add(number)
        if standby is None:
            host.start()
        elif host.is_started:
            self._world.time.soon(partial(self.started, host))

    def run(self, instance_id: int, attempt_id: str, *, resumed: bool) -> None:
        """Has a host run an attempt."""
        host = self._hosts.get(instance_id)
        if host is not None:
            self.ran_in[attempt_id] = host
            host.run(self._world.attempts[attempt_id], resumed=resumed)

    def get(self, instance_id: int) -> Host | None:
        """The host of an instance; None once it is gone."""
        return self._hosts.get(instance_id)

    def components(self) -> Iterator[tuple[str, str]]:
        """Components that hosts have loaded, with the tier that each is in."""
        for tier, digests in self._components.values():
            for digest in digests:
                yield digest, tier

    def all(self) -> list[Host]:
        """All hosts that have not ended."""
        return list(self._hosts.values())

    def fault(self, fault: Fault, reserved_mib: Callable[[int], tuple[int, bool]]) -> None:
        """Something happens to the host of an instance.

        Args:
            fault: of the scenario.
            reserved_mib: the memory that an instance reserves, and whether that is its devices'.
        """
        for number, host in list(self._hosts.items()):
            if host.key != fault.key or not host.is_started:
                continue
            if fault.kind == "crash":
                host.exit(1)
            elif fault.kind == "oom-kill":
                self._world.oom_kills += 1
                host.exit(KILLED)
            elif fault.kind == "silence":
                self._post(e.HostSilent(number, SILENT_MAX_S + 1))
            else:
                memory_mib, on_devices = reserved_mib(number)
                if on_devices:  # nothing measures these: the kernel ends the host
                    self._world.oom_kills += 1
                    host.kill()
                else:
                    used_mib = int(memory_mib * OVERUSE) + 1
                    self._post(e.MemoryMeasured(number, used_mib))

    def started(self, host: Host) -> None:
        """See ``HostOwner``."""
        if not host.is_gone:
            host.load(host.signature)
            self._post(e.HostStarted(self._number(host)))

    def not_started(self, host: Host) -> None:
        """See ``HostOwner``."""
        self._gone(host, failure("host-crashed"))

    def loaded(self, host: Host, failed: FailureReport | None) -> None:
        """See ``EngineOwner``."""
        number = self._number(host)
        if failed is not None:
            self._post(e.HostLoadFailed(number, self._or_out_of_memory(number, failed)))
            return
        signature = self._world.signatures[host.signature]
        capacity = self._world.engines[signature.engine].capacity
        loaded = e.HostLoaded(number, capacity, signature.load_s, {}, signature.asleep_mib)
        self._post(loaded)

    def sleep(self, number: int, host: Host) -> None:
        """Has a host fall asleep, or report that it cannot."""
        signature = self._world.signatures[host.signature]
        event: e.Event = e.HostAsleep(number)
        if signature.sleep_fails:
            event = e.HostSleepFailed(number, failure("engine"))
        self._turn(host, signature.sleep_s, event)

    def wake(self, number: int, host: Host) -> None:
        """Has a host wake, or report that it cannot."""
        signature = self._world.signatures[host.signature]
        event: e.Event = e.HostAwake(number, signature.wake_s)
        if signature.wake_fails:
            event = e.HostSleepFailed(number, failure("engine"))
        self._turn(host, signature.wake_s, event)

    def _turn(self, host: Host, after_s: float, event: e.Event) -> None:
        def turned() -> None:
            if not host.is_gone:
                self._post(event)

        self._world.time.after(after_s, turned)

    def printed(self, host: Host, line: str) -> None:
        """See ``EngineOwner``."""
        self._post(e.HostPrinted(self._number(host), line))

    def progressed(self, host: Host, attempt_id: str, fraction: float) -> None:
        """See ``EngineOwner``."""
        done = done_units(fraction)
        progressed = e.AttemptProgressed(
            self._number(host), attempt_id, int(done), done, float(UNITS), "steps"
        )
        self._post(progressed)

    def checkpointed(self, host: Host, attempt_id: str, fraction: float) -> None:
        """See ``EngineOwner``."""
        self._checkpoint(attempt_id, fraction)

    def ended(
        self, host: Host, attempt: Attempt, run_s: float, failed: FailureReport | None
    ) -> None:
        """See ``EngineOwner``."""
        number = self._number(host)
        keeps_files = failed is None and attempt.keeps_files
        if failed is not None:
            failed = self._or_out_of_memory(number, failed)
        elif attempt.outputs == "missing":
            failed = LACKING
        stores = failed is not None or attempt.outputs == "store"
        self._post(
            e.AttemptFinished(
                number,
                attempt.id,
                failure=failed,
                keeps_files=keeps_files,
                outputs=None if stores else {},
                usage=e.AttemptUsage(run_s=run_s, units=UNITS),
            )
        )

    def exited(self, host: Host, code: int) -> None:
        """See ``HostOwner``."""
        killed = code == KILLED and self._victims.blame(self._number(host))
        self._gone(host, failure("out-of-memory" if killed else "host-crashed"))

    def _gone(self, host: Host, failed: FailureReport) -> None:
        number = self._number(host)
        del self._hosts[number], self._components[number]
        self._victims.remove(number)
        self._post(e.HostExited(number, failed))

    def _or_out_of_memory(self, number: int, failed: FailureReport) -> FailureReport:
        is_plain = failed.kind == "engine"
        return failure("out-of-memory") if is_plain and self._victims.blame(number) else failed

    def _number(self, host: Host) -> int:
        return next(n for n, one in self._hosts.items() if one is host)
