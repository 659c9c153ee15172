"""A fleet in virtual time that does what plans of replicas say, one plan a step.

Replicas load one after the other on a worker, wait for memory, and close after a step. Every step
checks what must always hold.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.flowmesh_core.placement.builders import signature
from tests.flowmesh_core.serving.test_replica_placement import demand, host

from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.serving.plan.component_demand import FleetView
from flowmesh_core.serving.plan.replica_moves import MOVE_EVERY_S
from flowmesh_core.serving.plan.replica_placement import ServingPlan
from flowmesh_core.serving.plan.serving_plan import (
    PlannedComponent,
    PlannedService,
    ServePlan,
    ServingState,
    plan,
)
from flowmesh_core.serving.profile import BatchProfile

STEP_S = 20.0
LOAD_S = 20.0


def service(
    name: str,
    rate_per_s: float,
    peaks: Mapping[str, float],
    *,
    least: int = 1,
    most: int = 1,
    memory_mib: int = 3000,
    **changes: Any,
) -> PlannedComponent:
    """A service of one component.

    Args:
        name: its name.
        rate_per_s: what is asked for.
        peaks: by class of device, the most that one replica serves.
        least: replicas; ``most`` at most.
        memory_mib: of a replica.
        changes: of its demand.
    """
    info = signature(name, memory_mib=memory_mib)
    one = replace(demand(name, least, info=info), **changes)
    profiles = {c: BatchProfile.of({1: 1 / peak}) for c, peak in peaks.items()}
    return PlannedComponent(one, most, rate_per_s, profiles=profiles)


@dataclass
class _Replica:
    replica: ServingReplica
    ready_s: float
    is_closing: bool = False


@dataclass
class ServingWorld:
    """Workers and services.

    Attributes:
        workers: by name; ``free_memory_mib`` of each is what attempts leave.
        services: in order of age.
        broken: names of workers on which nothing can be loaded.
        now_s: the time.
        made: the last plan.
        begun_s: by service, when its moves began.
    """

    workers: dict[str, WorkerView]
    services: list[PlannedComponent]
    broken: set[str] = field(default_factory=set)
    now_s: float = 0.0
    made: ServePlan = field(default_factory=lambda: ServePlan(ServingPlan()))
    begun_s: dict[str, list[float]] = field(default_factory=dict)
    replicas: dict[str, dict[str, _Replica]] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Sequence[WorkerView], *services: PlannedComponent) -> "ServingWorld":
        return cls({w.name: w for w in workers}, list(services))

    def run(self, steps: int) -> "ServingWorld":
        """Lets so many steps pass."""
        for _ in range(steps):
            self.step()
        return self

    def step(self) -> None:
        """Plans, does what the plan says, and checks the laws."""
        before = self.ready_counts()
        planned = [PlannedService((one,)) for one in self.services]
        placement = self.made.placement
        seen = ServingState(planned, self._fleet(), self.made.counts, placement.moves)
        self.made = plan(seen, self.now_s)
        self._check_moves(placement)
        self._follow()
        self._check(before)
        self.now_s += STEP_S

    def places(self) -> dict[str, list[str]]:
        """Returns the services of ready replicas by worker."""
        return {
            name: sorted(self._service(r) for r in found.values() if self._is_ready(r))
            for name, found in self.replicas.items()
            if found
        }

    def ready_counts(self) -> Counter[str]:
        """Returns how many replicas of each service take requests."""
        return Counter(s for found in self.places().values() for s in found)

    @staticmethod
    def _service(one: _Replica) -> str:
        return one.replica.service.removeprefix("t/")

    def _is_ready(self, one: _Replica) -> bool:
        return one.ready_s <= self.now_s and not one.is_closing

    def _fleet(self) -> FleetView:
        found = [(name, r) for name, some in self.replicas.items() for r in some.values()]
        views = []
        for name, worker in self.workers.items():
            pinned = self._pinned_mib(name)
            free_mib = worker.free_memory_mib - pinned
            views.append(replace(worker, free_memory_mib=free_mib, replica_memory_mib=pinned))
        return FleetView(
            views,
            held={
                name: [i for i, r in some.items() if not r.is_closing]
                for name, some in self.replicas.items()
            },
            ready={r.replica.replica_id for _, r in found if self._is_ready(r)},
            failed={r.replica.replica_id for name, r in found if name in self.broken},
            pinned={
                name: {r.replica.opening.signature for r in some.values()}
                for name, some in self.replicas.items()
            },
        )

    def _pinned_mib(self, name: str) -> int:
        found = [r.replica.opening for r in self.replicas.get(name, {}).values()]
        return sum({o.signature: o.memory_mib for o in found}.values())

    def _follow(self) -> None:
        for name in self.workers:
            listed = {r.replica_id: r for r in self.made.placement.workers.get(name, ())}
            running = self.replicas.setdefault(name, {})
            for replica_id in [i for i, r in running.items() if r.is_closing]:
                del running[replica_id]
            for replica_id, one in running.items():
                one.is_closing = replica_id not in listed
            ready_s = self.now_s
            for replica_id, replica in listed.items():
                if replica_id not in running:
                    ready_s += LOAD_S if name not in self.broken else 1e9
                    running[replica_id] = _Replica(replica, ready_s)

    def _check_moves(self, before: ServingPlan) -> None:
        for name, move in self.made.placement.moves.items():
            known = before.moves.get(name)
            if move.coming and (known is None or known.coming != move.coming):
                begun = self.begun_s.setdefault(name, [])
                assert not begun or self.now_s >= begun[-1] + MOVE_EVERY_S
                begun.append(self.now_s)

    def _check(self, before: Counter[str]) -> None:
        after = self.ready_counts()
        for one in self.services:
            name = one.demand.service.removeprefix("t/")
            least = min(before[name], one.demand.wanted)
            assert after[name] >= least, f"{name} has {after[name]} of {least} at {self.now_s}"
        for name, worker in self.workers.items():
            found = self.replicas[name].values()
            loaded = {r.replica.opening.signature: r.replica.opening.memory_mib for r in found}
            assert sum(loaded.values()) <= worker.free_memory_mib, f"{name} at {self.now_s}"


def device(name: str, device_class: str, price: int = 1, memory_mib: int = 3500) -> WorkerView:
    """A worker with one device."""
    return host(
        name, device_class=device_class, price_nanousd_per_hour=price, memory_mib=memory_mib
    )
