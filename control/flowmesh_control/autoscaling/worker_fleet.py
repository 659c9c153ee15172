"""The connected workers of a pool as values, and the commands to cordon and prewarm them.

Used by the operator, which sizes pools by what their workers run.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from flowmesh_core.machine import serving
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import (
    CordonChanged,
    PrewarmPlanChanged,
    ReservedPoolsChanged,
)
from flowmesh_core.machine.prewarm import prewarm_is_current
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import Component, WorkerShape
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class ConnectedWorker:
    """A connected worker at one moment.

    Attributes:
        components: on disk or in memory.
        attempts: how many are assigned to it.
        replicas: of services, that are loaded or to be loaded there.
        draining: it finishes its attempts and leaves.
        takes_work: it may be assigned new attempts.
        distrusted: it is cordoned for protocol violations.
        store_problem: why it cannot reach the store and takes no work; empty where it can.
    """

    shape: WorkerShape
    started_s: float
    components: tuple[Component, ...] = ()
    attempts: int = 0
    draining: bool = False
    takes_work: bool = True
    distrusted: bool = False
    replicas: int = 0
    store_problem: str = ""

    @property
    def name(self) -> str:
        """The worker's name, which in a cluster is its pod's."""
        return self.shape.name


@dataclass(frozen=True, slots=True)
class ConnectedFleet:
    """Returns the workers of a pool; sets what is cordoned and reserved, and what they prewarm.

    Attributes:
        post_and_wait: posts an event to the machine and waits until it was applied.
    """

    state: State
    post_and_wait: Callable[
        [CordonChanged | PrewarmPlanChanged | ReservedPoolsChanged], Awaitable[None]
    ]

    def workers(self, pool: str) -> tuple[ConnectedWorker, ...]:
        """Returns the connected workers of a pool, in order of their connection."""
        found = (w for w in self.state.workers.values() if w.shape.pool == pool)
        return tuple(map(self._observed, found))

    async def cordon(self, names: frozenset[str]) -> None:
        """Makes these the only cordoned workers; does nothing if they are already."""
        if names != self.state.cordoned:
            await self.post_and_wait(CordonChanged(names))

    async def reserve(self, pools: Mapping[str, frozenset[str]]) -> None:
        """Makes these the only reserved pools, each with the namespaces that it admits."""
        if pools != self.state.reserved_pools:
            await self.post_and_wait(ReservedPoolsChanged(dict(pools)))

    async def prewarm(self, plan: Mapping[str, tuple[Digest, ...]]) -> None:
        """Sets which engines workers prewarm; does nothing if the plan is unchanged.

        Args:
            plan: worker → signatures; a worker that it does not name prewarms none.
        """
        if not prewarm_is_current(self.state, plan):
            await self.post_and_wait(PrewarmPlanChanged(dict(plan)))

    def _observed(self, worker: Worker) -> ConnectedWorker:
        return ConnectedWorker(
            shape=worker.shape,
            started_s=worker.started_s,
            components=worker.components,
            attempts=len(worker.attempts),
            draining=worker.draining,
            takes_work=self.state.takes_work(worker),
            distrusted=(worker.shape.pool, worker.name) in self.state.distrusted,
            replicas=serving.count(worker),
            store_problem=worker.store_problem,
        )
