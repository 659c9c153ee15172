"""The hub of a simulated worker, as its agent starts, uses and loses it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.worker_agent import events as e
from flowmesh_sim.kernel.environment import Timer, cancel
from flowmesh_sim.serving.sim_hub import SimHub

if TYPE_CHECKING:
    from flowmesh_sim.workers.worker import SimWorker

HUB_START_S = 0.3
"""Until the process of a hub takes replicas."""


class WorkerHub:
    """The hub's process: none, one that starts, or one that runs."""

    def __init__(self, worker: "SimWorker", post: Callable[[e.Event], None]) -> None:
        """Starts nothing; ``post`` posts events to the agent."""
        self._worker = worker
        self._post = post
        self._hub_id = 0
        self._starts: Timer | None = None
        self._running: SimHub | None = None

    def start(self, hub_id: int) -> None:
        """Starts the process; one that runs connects to new routers by itself."""
        if self._running is not None and hub_id == self._hub_id:
            self._post(e.HubReady(hub_id))
            return
        self._hub_id = hub_id
        engine = self._worker.engine
        self._starts = engine.after(HUB_START_S * self._worker.slow, self._ready, hub_id)

    def admit(self, instance: int, replica: ServingReplica) -> None:
        """Takes calls of a replica, where its service gets any."""
        calls, hub = self._worker.around.calls, self._running
        if calls is None or hub is None:
            return
        make = calls.engine_of(replica.service)
        if make is not None:
            hub.admit(replica.replica_id, replica.service, instance, make)

    def withdraw(self, replica_id: str) -> None:
        """Takes no further calls of a replica."""
        if self._running is not None:
            self._running.withdraw(replica_id)

    def host_lost(self, instance: int) -> None:
        """Ends the calls of an instance whose host has ended."""
        if self._running is not None:
            self._running.host_lost(instance)

    def fail(self) -> None:
        """Ends the process by a fault; the agent starts another one."""
        if self._running is not None:
            hub_id = self._hub_id
            self.stop()
            self._post(e.HubExited(hub_id, "the hub was killed"))

    def stop(self) -> None:
        """Ends the process."""
        cancel(self._starts)
        if self._running is not None:
            hub, self._running = self._running, None
            hub.stop()

    def _ready(self, hub_id: int) -> None:
        calls, worker = self._worker.around.calls, self._worker
        if calls is not None:
            name = f"{worker.incarnation} of {worker.name}, hub {hub_id}"
            self._running = SimHub(worker.engine, name, calls.fabric, self._report_usage)
            calls.fabric.connect(self._running)
        self._post(e.HubReady(hub_id))

    def _report_usage(self, replica_id: str, calls: int, units: int) -> None:
        self._post(e.CallsBusy(replica_id, calls, units))
