"""Counts the memory that engine instances reserve, of the host or of its devices."""

from collections.abc import Iterable

import msgspec


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """Memory set aside for one engine instance or standby host.

    Attributes:
        memory_mib: on each of the devices, or of the host if there are none.
        devices: indices of devices.
        weights_mib: of the host too, for the weights of an engine on devices that is asleep or has
            been: the memory into which they are copied stays its own until its process ends.
    """

    memory_mib: int
    devices: tuple[int, ...] = ()
    weights_mib: int = 0


class MemoryBudget:
    """Reserves memory, never more than there is."""

    def __init__(self, host_mib: int, devices: int = 0, device_mib: int = 0) -> None:
        self._host_mib = host_mib
        self._host_free_mib = host_mib
        self._device_mib = device_mib
        self._device_free_mib = [device_mib] * devices

    @property
    def free_mib(self) -> tuple[int, tuple[int, ...]]:
        """Free memory of the host and of each device, in MiB."""
        return self._host_free_mib, tuple(self._device_free_mib)

    def can_ever(self, memory_mib: int, devices: int) -> bool:
        """Returns whether an empty worker could reserve this; never a negative amount."""
        if memory_mib < 0:
            return False
        if devices == 0:
            return memory_mib <= self._host_mib
        return devices <= len(self._device_free_mib) and memory_mib <= self._device_mib

    def total_mib(self, devices: int) -> int:
        """Returns what an empty worker has for one instance: of each device, or of the host."""
        return self._device_mib if devices else self._host_mib

    def reserve(self, memory_mib: int, devices: int) -> Reservation | None:
        """Reserves memory, on the devices with most of it free; None if there is too little.

        Args:
            memory_mib: on each device, or of the host.
            devices: number of devices; 0 reserves memory of the host.
        """
        if devices == 0:
            if memory_mib > self._host_free_mib:
                return None
            self._host_free_mib -= memory_mib
            return Reservation(memory_mib)
        free = self._device_free_mib
        order = sorted(range(len(free)), key=lambda i: (-free[i], i))
        chosen = tuple(sorted(i for i in order[:devices] if free[i] >= memory_mib))
        if len(chosen) < devices:
            return None
        for index in chosen:
            free[index] -= memory_mib
        return Reservation(memory_mib, chosen)

    def suffices(
        self,
        memory_mib: int,
        devices: int,
        without: Iterable[Reservation],
        beside: Iterable[Reservation] = (),
    ) -> bool:
        """Returns whether :meth:`reserve` would succeed after a change.

        Args:
            memory_mib: as of :meth:`reserve`.
            devices: as there.
            without: reservations that are released before.
            beside: others that are made before.
        """
        trial = self._after(without, beside)
        return trial.is_sound and trial.reserve(memory_mib, devices) is not None

    def fits(
        self,
        wanted: Reservation,
        without: Iterable[Reservation],
        beside: Iterable[Reservation] = (),
    ) -> bool:
        """Returns whether this very reservation could be made after such a change."""
        return self._after(without, [*beside, wanted]).is_sound

    def take(self, reservation: Reservation) -> None:
        """Reserves memory of these devices, for which :meth:`fits` has been asked."""
        if not reservation.devices:
            self._host_free_mib -= reservation.memory_mib
        self._host_free_mib -= reservation.weights_mib
        for index in reservation.devices:
            self._device_free_mib[index] -= reservation.memory_mib

    @property
    def is_sound(self) -> bool:
        """Whether no more is reserved than there is."""
        return self._host_free_mib >= 0 and all(free >= 0 for free in self._device_free_mib)

    def reserved_beside(self, known: Iterable[Reservation]) -> tuple[int, ...]:
        """Returns what is reserved and not known: of the host, and of each device, in MiB."""
        trial = self._after(known, ())
        device_mib = (self._device_mib - free for free in trial._device_free_mib)
        return self._host_mib - trial._host_free_mib, *device_mib

    def _after(
        self, released: Iterable[Reservation], made: Iterable[Reservation]
    ) -> "MemoryBudget":
        trial = MemoryBudget(self._host_free_mib)
        trial._device_free_mib = list(self._device_free_mib)
        for reservation in released:
            trial.release(reservation)
        for reservation in made:
            trial.take(reservation)
        return trial

    def release(self, reservation: Reservation) -> None:
        """Frees reserved memory."""
        self._host_free_mib += reservation.weights_mib
        if not reservation.devices:
            self._host_free_mib += reservation.memory_mib
        for index in reservation.devices:
            self._device_free_mib[index] += reservation.memory_mib
