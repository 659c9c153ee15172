"""What the connection asks of the rest of the worker."""

from typing import Protocol

from flowmesh_core.protocol.messages import Component, Desired, EngineInstanceState


class WorkerReport(Protocol):
    """Lanes, components and metrics as they are now."""

    def lanes(self) -> tuple[EngineInstanceState, ...]:
        """All lanes."""
        ...

    def components(self) -> tuple[Component, ...]:
        """All components."""
        ...

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by name."""
        ...


class DesiredStateFollower(WorkerReport, Protocol):
    """A worker that follows what the control plane desires."""

    def follow(self, desired: Desired) -> None:
        """Makes it so."""
        ...
