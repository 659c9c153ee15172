"""Ports of the worker agent: what it asks its shell beside events and settings.

The worker implements them with its installed engines and its power meter, the simulator with its
models. All answers are immediate.
"""

from dataclasses import dataclass
from typing import Protocol

from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec


@dataclass(frozen=True, slots=True)
class Preload:
    """The libraries that a standby host imports before it knows what it will load.

    Attributes:
        name: unique among preloads.
        memory_mib: host memory that such a host uses.
    """

    name: str
    memory_mib: int


class EngineFacts(Protocol):
    """Facts about the engines of this worker."""

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Returns why no engine here serves this, such as another version; None if one does."""
        ...

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """Returns how many devices a host of this engine owns; 0 for a host on the CPU."""
        ...

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """Returns what a standby host for it imports; None if that saves nothing."""
        ...


class EnergyCounter(Protocol):
    """Counts joules of attempts while they run."""

    def begin(self, attempt_id: str) -> None:
        """Starts counting for an attempt."""
        ...

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """Stops counting.

        Returns:
            Joules since ``begin`` (0 without one), and whether they are an estimate.
        """
        ...


class FetchCounter(Protocol):
    """Counts the bytes that come from the store to this worker while an attempt fetches.

    Those that come for others count too: they use the same network in the same seconds, and an
    attempt may wait for what another one fetches. So bytes over seconds is what the network
    carries.
    """

    def begin(self, attempt_id: str) -> None:
        """Starts counting for an attempt."""
        ...

    def end(self, attempt_id: str) -> int:
        """Stops counting; returns the bytes since ``begin`` (0 without one)."""
        ...
