"""Engine instances that are asleep: the process and the weights stay, the device's memory is freed.

An idle instance that must make room falls asleep in place of being closed, if its engine can, and
if the worker has host memory left for its weights. To wake it takes the time of a copy; to start it
again takes a process, the weights from the disk, compilation and the capture of graphs (ADR 93).

What an instance reserves:

| state | on each device | of the host, engine on devices | of the host, engine on the CPU |
| --- | --- | --- | --- |
| ready, before its first sleep | its memory | | its memory |
| falling asleep | its memory | its weights | its memory |
| asleep | what it leaves there | its weights | its weights and its process |
| waking, ready again | its memory | its weights | its memory |

Weights stay in the host memory of an engine that has woken: it is pinned and kept for the next
sleep (vLLM issue 16663).
"""

from collections.abc import Sequence

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.worker_agent.events import HostAwake
from flowmesh_core.worker_agent.instructions import ClearTimer, SetTimer, SleepHost, WakeHost
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget, Reservation
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.reports import figure
from flowmesh_core.worker_agent.state import ASLEEP, AgentState, Instance
from flowmesh_core.worker_agent.transitions import InstanceState

DEVICE_MIB = 2048
"""What an engine that is asleep leaves on each of its devices: as the worker assumes.

A CUDA context of some 0.5 GiB and captured graphs: 1,503,657,984 bytes in vLLM issue 47654. ``make
gpu-check`` measures it.
"""
SETTLED_S = 5.0
"""Memory that was measured sooner after an instance fell asleep may be from before."""
TIMER = "sleep"
WAKE_MAX_S = 1e6
WITHIN_S = 120.0
"""A host that takes longer than this to fall asleep or to wake hangs, and is ended."""


class SleepingInstances:
    """Puts instances asleep and wakes them, within the host memory that the worker has for it."""

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        memory: MemoryBudget,
        *,
        limit_mib: int,
        device_mib: int,
    ) -> None:
        """Puts none asleep at first.

        Args:
            state: attempts and engine instances.
            out: for instructions.
            memory: of the host and its devices.
            limit_mib: host memory for instances that are asleep; 0 has none sleep.
            device_mib: what one leaves on each of its devices.
        """
        self._state = state
        self._out = out
        self._memory = memory
        self._limit_mib = limit_mib
        self._device_mib = device_mib
        self._unable: set[str] = set()

    @property
    def used_mib(self) -> int:
        """Host memory of instances that are asleep, or were, now."""
        return sum(map(_host_mib, self._state.instances.values()))

    @property
    def limit_mib(self) -> int:
        """The most that :attr:`used_mib` may be."""
        return self._limit_mib

    def oldest_first(self) -> list[Instance]:
        """Returns the instances that are asleep, the one that fell asleep first at first."""
        asleep = [i for i in self._state.instances.values() if i.state is InstanceState.ASLEEP]
        return sorted(asleep, key=lambda i: i.asleep_since_s)

    def asleep(self, instance: Instance) -> Reservation | None:
        """Returns what an idle instance reserves once it is asleep; None if it cannot sleep."""
        if instance.isolated_for or instance.signature in self._unable:
            return None
        if not 0 < instance.asleep_mib <= self._limit_mib:
            return None
        left = self.left(instance)
        return left if left.memory_mib < instance.awake.memory_mib else None

    def left(self, instance: Instance) -> Reservation:
        """Returns what an instance reserves while it is asleep."""
        devices = instance.awake.devices
        if devices:
            left_mib = min(self._device_mib, instance.awake.memory_mib)
            return Reservation(left_mib, devices, instance.asleep_mib)
        return Reservation(instance.asleep_mib)

    def begin(self, instance: Instance) -> bool:
        """Has an idle instance fall asleep; returns False where host memory is short."""
        if not self._fits(instance, ()):
            return False
        self._reserve(instance, self.woken(instance))
        instance.move(InstanceState.FALLING_ASLEEP)
        self._out.add(SleepHost(instance.id))
        self._out.add(SetTimer((TIMER, str(instance.id)), self._out.now_s + WITHIN_S))
        return True

    def in_the_way(self, instance: Instance, spared: str) -> Instance | None:
        """Returns the instance to close first, so that another can fall asleep.

        Args:
            instance: the other.
            spared: key of an instance that is about to be woken.

        Returns:
            None if closing all that are asleep would not suffice.
        """
        others = [one for one in self.oldest_first() if one.key != spared]
        return others[0] if others and self._fits(instance, others) else None

    def fell_asleep(self, instance: Instance) -> None:
        """Frees the memory of an instance that is asleep now."""
        if instance.state is not InstanceState.FALLING_ASLEEP:
            return
        self._answered(instance)
        self._reserve(instance, self.left(instance))
        instance.asleep_since_s = self._out.now_s
        instance.move(InstanceState.ASLEEP)

    def woken(self, instance: Instance) -> Reservation:
        """Returns what an instance reserves from its first sleep on while it is awake."""
        awake = instance.awake
        if awake.devices:
            return Reservation(awake.memory_mib, awake.devices, instance.asleep_mib)
        return awake

    def wake(self, instance: Instance) -> None:
        """Wakes an instance; the caller has seen to it that its memory is free."""
        self._reserve(instance, self.woken(instance))
        instance.move(InstanceState.WAKING)
        self._out.add(WakeHost(instance.id))
        self._out.add(SetTimer((TIMER, str(instance.id)), self._out.now_s + WITHIN_S))

    def awake(self, instance: Instance, event: HostAwake) -> None:
        """Records that an instance takes attempts again."""
        self._answered(instance)
        instance.wake_s = min(figure(event.wake_s), WAKE_MAX_S)
        instance.last_used_s = self._out.now_s
        instance.move(InstanceState.READY)

    def failed(self, instance: Instance) -> None:
        """Records that a sleep or a wake failed: no other of this signature is put asleep."""
        self._answered(instance)
        self._unable.add(instance.signature)

    def ended(self, instance: Instance) -> None:
        """Clears the timer of an instance whose host has exited."""
        if instance.state in (InstanceState.FALLING_ASLEEP, InstanceState.WAKING):
            self._answered(instance)

    def _answered(self, instance: Instance) -> None:
        self._out.add(ClearTimer((TIMER, str(instance.id))))

    def _fits(self, instance: Instance, closed: Sequence[Instance]) -> bool:
        freed_mib = _host_mib(instance) + sum(map(_host_mib, closed))
        if self.used_mib - freed_mib + instance.asleep_mib > self._limit_mib:
            return False
        released = [instance.reservation, *(one.reservation for one in closed)]
        return self._memory.fits(self.woken(instance), released)

    def _reserve(self, instance: Instance, reservation: Reservation) -> None:
        self._memory.release(instance.reservation)
        self._memory.take(reservation)
        instance.reservation = reservation


def hangs(instance: Instance) -> FailureReport:
    """Returns the failure of a host that does not fall asleep, or does not wake."""
    return FailureReport(
        FailureKind.HOST_CRASHED.value,
        f"the host of {instance.engine} was {instance.state.value} for {WITHIN_S:.0f} s",
        detail=instance.last_lines(),
    )


def _host_mib(instance: Instance) -> int:
    """Host memory of an instance that counts against the limit."""
    reservation = instance.reservation
    if reservation.devices:
        return reservation.weights_mib
    return instance.asleep_mib if instance.state in ASLEEP else 0
