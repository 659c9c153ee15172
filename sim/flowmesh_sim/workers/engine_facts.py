"""Answers the worker agent's questions about engines from the catalog and the models."""

from flowmesh_core.protocol.messages import Assignment, FailureReport, PrewarmSpec
from flowmesh_core.worker_agent.ports import Preload
from flowmesh_sim.models.devices import Device
from flowmesh_sim.workers.context import WorkerContext


class SimEngineFacts:
    """Implements ``EngineFacts`` for the workers of one class of device."""

    def __init__(self, context: WorkerContext, device: Device) -> None:
        self._context = context
        self._device = device

    def refusal(self, wanted: Assignment | PrewarmSpec) -> FailureReport | None:
        """Returns None: simulated workers have every engine that they offer."""
        return None

    def devices(self, engine: str, tensor_parallel: int) -> int:
        """Returns how many devices a host owns; 0 on a CPU worker or for engines that use none."""
        owns = self._device.accelerator and self._context.needs_device(engine)
        return tensor_parallel if owns else 0

    def preload(self, wanted: Assignment | PrewarmSpec) -> Preload | None:
        """Returns the library that a standby host imports; None for light engines."""
        return self._context.duties.preload(wanted.engine)
