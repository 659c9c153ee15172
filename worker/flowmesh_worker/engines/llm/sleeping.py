"""The face of engines with a backend by which a host has them sleep; see ``engine_api.Sleeps``."""

from typing import Any


class SleepsWithBackend:
    """Passes sleep and wake on to a backend that can; an engine with another one cannot sleep."""

    _backend: Any

    @property
    def asleep_mib(self) -> int:
        """Host memory that the loaded engine takes while it is asleep; 0 if it cannot sleep."""
        return int(getattr(self._backend, "asleep_mib", 0))

    async def sleep(self) -> None:
        """Frees the devices, or on a CPU the key-value cache."""
        await self._backend.sleep()

    async def wake(self) -> None:
        """Takes that memory back."""
        await self._backend.wake()
