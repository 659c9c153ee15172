"""A pool in virtual time: the real machine, scheduler and scaler around a ReplicaSet's rules.

The ReplicaSet makes and deletes pods as Kubernetes does: of too many it takes those that are not
ready, then those of the lowest deletion cost, then the youngest. Where another's autoscaler writes
the size, it looks now and then, at a figure that is old by then.
"""

import random
from dataclasses import dataclass, field

from tests.flowmesh_core.machine.world import SOLO, World, plan, shape, step

from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.machine.events import CordonChanged
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.protocol.results import Usage
from flowmesh_operator.pools.autoscaling import (
    PodObservation,
    PoolObservation,
    PoolScaler,
    ScalingPlan,
)
from flowmesh_operator.pools.observation import worker_seen

POOL = "default"


@dataclass
class Pod:
    name: str
    created_s: float
    up_s: float
    ready: bool = False
    cost: int = 0


@dataclass
class Sim:
    """One pool; a tick is a second.

    Attributes:
        sizes: (time, size) whenever the size was written.
        delay_s: the delay of the ReplicaSet.
        every_s: the period of an external autoscaler; 0: none.
        stale_s: the age of the figure that it reads.
        serving: workers that replicas of services need.
    """

    maximum: int = 5
    minimum: int = 0
    target_s: float = 60.0
    stabilization_s: float = 300.0
    start_s: float = 20.0
    delay_s: float = 0.0
    every_s: int = 0
    stale_s: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    replicas: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    sizes: list[tuple[float, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    made: int = 0
    steady: bool = True
    serving: int = 0

    def __post_init__(self) -> None:
        self.world = World()
        self.born_s = self.world.now
        self.scaler = self.new_scaler()
        self.durations: dict[str, float] = {}
        self.acts_at: list[tuple[float, int]] = []
        self.told: list[tuple[float, int]] = []

    @property
    def now(self) -> float:
        return self.world.now

    def new_scaler(self) -> PoolScaler:
        return PoolScaler(
            target_s=self.target_s, stabilization_s=self.stabilization_s, replicas=self.replicas,
            now_s=self.world.now, by_another=self.every_s > 0,
        )  # fmt: skip

    def submit(self, *durations: float) -> str:
        """Submits a run whose steps take these seconds, in parallel."""
        steps = []
        for duration in durations:
            path = f"s{len(self.durations)}"
            steps.append(step(path, uses=SOLO, value=len(self.durations)))
            self.durations[path] = duration
        return self.world.submit(plan(*steps))

    def run(self, seconds: float, until: "object" = None) -> None:
        for _ in range(int(seconds)):
            self.tick()
            if callable(until) and until():
                return

    def idle(self) -> bool:
        return not self.world.machine.state.runs

    def tick(self) -> None:
        self.world.now += 1.0
        self._pods_come_up()
        self._attempts_end()
        self.world.beat()
        self.world.tick()
        self._note_starts()
        self._scale()
        self._autoscaler()
        self._replica_set()

    def _scale(self) -> None:
        made = self.scaler.plan(self.view(), self.backlog(), self.seen(look=False), self.now)
        if made.needs_pods:
            made = self.scaler.plan(self.view(), self.backlog(), self.seen(look=True), self.now)
        self._do(made)

    def _do(self, made: ScalingPlan) -> None:
        self.world.apply(CordonChanged(made.cordon))
        for name, cost in made.marks.items():
            if name in self.pods:
                self.pods[name].cost = cost
        self.told.append((self.now, made.external_target))
        if made.replicas is not None and not self.every_s:
            assert made.replicas != self.replicas, "a write that changes nothing"
            self.reasons.append(made.reason)
            self._resize(made.replicas)

    def _autoscaler(self) -> None:
        """Acts as a HorizontalPodAutoscaler whose maximum is never less than the size."""
        if not self.every_s or int(self.now - self.born_s) % self.every_s:
            return
        known = [n for at_s, n in self.told if at_s <= self.now - self.stale_s]
        most = max(self.maximum, self.replicas)
        size = min(max(known[-1], self.minimum), most) if known else self.replicas
        if size != self.replicas:
            self._resize(size)

    def _resize(self, size: int) -> None:
        self.replicas = size
        self.sizes.append((self.now - self.born_s, size))
        self.acts_at.append((self.now + self.delay_s, size))

    def view(self) -> PoolView:
        return PoolView(POOL, shape("any"), self.minimum, self.maximum, self.scaler.start_s)

    def backlog(self):
        machine = self.world.machine
        seen = snapshot(machine.state, self.now)
        floors = {POOL: self.serving}
        found = signal_of(seen, machine.state.model, [self.view()], serving=floors)
        return found.backlogs[POOL]

    def seen(self, *, look: bool) -> PoolObservation:
        fleet = ConnectedFleet(self.world.machine.state, self._posted)
        workers = {w.name: worker_seen(w) for w in fleet.workers(POOL)}
        pods = [
            PodObservation(p.name, p.ready, leaving=False, cost=p.cost, created_s=p.created_s)
            for p in self.pods.values()
        ]
        return PoolObservation(self.replicas, workers, pods if look else None, self.steady)

    async def _posted(self, event: "object") -> None:
        raise AssertionError(f"nothing posts {event} here")

    def _pods_come_up(self) -> None:
        for pod in self.pods.values():
            if not pod.ready and self.now >= pod.up_s:
                pod.ready = True
                self.world.join(pod.name)

    def _note_starts(self) -> None:
        for held in self.world.held.values():
            for attempt_id, assignment in held.items():
                if attempt_id not in self.ends:
                    value = assignment.params["value"]
                    self.ends[attempt_id] = self.now + self.durations[f"s{value}"]

    def _attempts_end(self) -> None:
        for attempt_id, end_s in list(self.ends.items()):
            if self.now >= end_s:
                del self.ends[attempt_id]
                if any(attempt_id in held for held in self.world.held.values()):
                    value = int(self._value(attempt_id))
                    took_s = self.durations[f"s{value}"]
                    self.world.finish(attempt_id, usage=Usage(units=1, run_s=took_s))

    def _value(self, attempt_id: str) -> int:
        worker = self.world.worker_of(attempt_id)
        value: int = self.world.held[worker][attempt_id].params["value"]
        return value

    def _replica_set(self) -> None:
        while self.acts_at and self.now >= self.acts_at[0][0]:
            self.acts_at.pop(0)
        size = self.replicas if not self.acts_at else len(self.pods)
        while len(self.pods) < size:
            self.made += 1
            up_s = self.now + self.start_s * self.rng.uniform(0.5, 1.5)
            name = f"pod-{self.made}"
            self.pods[name] = Pod(name, self.now, up_s)
        ranked = sorted(self.pods.values(), key=lambda p: (p.ready, p.cost, -p.created_s))
        for pod in ranked[: max(0, len(self.pods) - size)]:
            self._delete(pod.name)

    def _delete(self, name: str) -> None:
        held = self.world.held.get(name)
        assert not held, f"{name} was taken away while it ran {list(held)}"
        worker = self.world.machine.state.workers.get(name)
        assert worker is None or not worker.replicas, f"{name} was taken away while it served"
        del self.pods[name]
        if name in self.world.machine.state.workers:
            self.world.lose(name)
