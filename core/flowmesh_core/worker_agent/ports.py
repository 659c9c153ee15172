"""What the worker agent asks its shell: what is neither an event nor a setting.

The worker implements the ports with its installed engines and its power meter, the simulator with
its models. All answers are immediate.
"""

from dataclasses import dataclass
from typing import Protocol

from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec


@dataclass(frozen=True, slots=True)
class Preload:
    """The libraries that a standby host imports before it knows what it will load.

    Attributes:
        name: unique among preloads.
        memory_mib: host memory that such a host occupies.
    """

    name: str
    memory_mib: int


class EngineFacts(Protocol):
    """What the engines of this worker need."""

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Why no engine here serves this, such as another version; None where one does."""
        ...

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """How many devices a host of this engine owns; 0 for a host on the CPU."""
        ...

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """What a standby host for it imports; None where that saves nothing."""
        ...


class EnergyCounter(Protocol):
    """Joules of the attempts that run."""

    def begin(self, attempt_id: str) -> None:
        """Counts for an attempt from now on."""
        ...

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """Stops counting.

        Returns:
            Joules since ``begin`` (0 without one), and whether they are an estimate.
        """
        ...
