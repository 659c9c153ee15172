"""What all workers of a simulation share: time, store, duties, network, and who measures them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.worker_agent.instructions import Instruction
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.models.work_model import WorkModel


class Observer(Protocol):
    """Who measures workers from outside."""

    def began(self, attempt_id: str) -> None:
        """An attempt runs."""
        ...

    def spoils(self, attempt_id: str) -> FailureReport | None:
        """Whether an attempt that did its work is to fail all the same, and how."""
        ...


@dataclass(frozen=True)
class WorkerContext:
    """What all workers of a simulation share.

    Attributes:
        applied: called with a worker's agent and its instructions after every event.
        epoch_s: the worker's wall clock at virtual second 0.
    """

    engine: Environment
    store: SimStore
    duties: WorkModel
    network: Any
    observer: Observer
    applied: Callable[[WorkerAgent, list[Instruction]], None]
    capacity: Callable[[str], int]
    needs_device: Callable[[str], bool]
    unload_s: tuple[float, float]
    grace_s: float
    epoch_s: float
    disk_bytes: int
    bytes_per_s: float
    upload_bytes_per_s: float
    request_s: float
    latency_s: float
