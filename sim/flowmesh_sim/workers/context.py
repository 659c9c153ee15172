"""What all workers of a simulation share: time, store, work model, network and observer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.worker_agent.instructions import Instruction
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.models.download_rates import DownloadRates
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.serving.service_calls import ServiceCalls


class Observer(Protocol):
    """Measures workers from outside, and injects failures."""

    def began(self, attempt_id: str) -> None:
        """Records that an attempt runs."""
        ...

    def spoils(self, attempt_id: str) -> FailureReport | None:
        """Returns the failure to inject into an attempt that has done its work; None for none."""
        ...


@dataclass(frozen=True)
class WorkerContext:
    """What all workers of a simulation share.

    Attributes:
        applied: called with a worker's agent and its instructions after every event.
        capacity: attempts at once, by engine.
        needs_device: whether an engine uses a device, by engine.
        unload_s: seconds that an engine with and one without a model take to exit.
        epoch_s: Unix time at virtual second 0.
        request_s: seconds to the first byte of the store.
        latency_s: of a message, one way.
        serves: whether workers have a hub, and so can hold replicas of services.
        calls: the routers, and how services answer; None where services get no calls.
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
    downloads: DownloadRates
    upload_bytes_per_s: float
    request_s: float
    latency_s: float
    serves: bool = False
    calls: ServiceCalls | None = None
