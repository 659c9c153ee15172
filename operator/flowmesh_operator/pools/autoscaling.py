"""Plans how many workers a pool has and which of them are removed. Pure: one plan a round.

Level-triggered: a plan follows from the current observation and a little state that may be lost. A
worker is removed in two rounds. First it is cordoned, so that it gets nothing new, and its pod is
marked with the lowest deletion cost; then, if it is still idle, the pool's size shrinks by one. A
busy worker is never marked, so the ReplicaSet always has another pod to delete. Where more workers
are busy than are needed, some are cordoned and removed after they end what they run.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.pool_supply import longest_s

FIRST_START_S = 30.0
"""Predicted seconds until a worker connects, before any has connected."""
LEARNING_RATE = 0.3
MARKED, UNMARKED = -1000, 0
"""Deletion costs: of pods to be removed, and of all others."""
ABSENT_S = 330.0
"""How long a ready pod without a connected worker may still run attempts: until its agent gives up
looking for a control plane (``--orphan-timeout``), and some time to end."""
AUTOSCALER_REACTION_S = 60.0
"""By then a ReplicaSet has chosen the pods to delete, and an external autoscaler has read the
published size: a scrape and its own rounds."""


@dataclass(frozen=True, slots=True)
class PodObservation:
    """A pod of the pool as observed.

    Attributes:
        ready: whether its worker was welcomed since the pod started.
        leaving: whether it is being deleted, or has ended.
        cost: its deletion cost.
        created_s: when it was created, seconds since the epoch.
    """

    name: str
    ready: bool = False
    leaving: bool = False
    cost: int = UNMARKED
    created_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """A connected worker of the pool.

    Attributes:
        assigned: number of attempts assigned to it, and of replicas of services that it holds.
        warm_bytes: size of the components in its host or device memory.
        serves: whether it has a replica of a service.
    """

    assigned: int = 0
    warm_bytes: int = 0
    serves: bool = False


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """The observed state of a pool.

    Attributes:
        replicas: the size of its Deployment.
        pods: None where they were not listed; they are needed only where the pool is too large.
        workers: the connected workers by name, which is the pod's name.
        steady: whether it is known what the workers run (it is not right after a takeover).
    """

    replicas: int
    workers: Mapping[str, WorkerObservation]
    pods: Sequence[PodObservation] | None = None
    steady: bool = True


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """Changes to make to a pool, in the order of the attributes.

    Attributes:
        wanted: how many workers the pool should have.
        cordon: all workers of the pool that must be cordoned; all others are uncordoned.
        marks: deletion costs to set, by pod.
        replicas: the size to write; None where it does not change.
        reason: why the size changes, as a sentence.
        needs_pods: whether pods must be listed to plan further.
        external_target: the size that an external autoscaler (HPA, KEDA) may set: ``wanted``
            and those above it that are not cordoned and marked yet, where a ReplicaSet could
            delete a busy one.
    """

    wanted: int
    cordon: frozenset[str] = frozenset()
    marks: Mapping[str, int] = field(default_factory=dict)
    replicas: int | None = None
    reason: str = ""
    needs_pods: bool = False
    external_target: int = 0


class PoolScaler:
    """Plans the size of one pool; its state may be lost without harm."""

    def __init__(
        self,
        *,
        target_s: float,
        stabilization_s: float,
        replicas: int,
        now_s: float,
        start_s: float = FIRST_START_S,
        by_another: bool = False,
    ) -> None:
        """Starts from the pool's current size.

        Args:
            target_s: predicted seconds of work per worker.
            stabilization_s: how long fewer workers must have been enough; the window begins now.
            replicas: the pool's size now.
            now_s: the time.
            start_s: predicted seconds until a worker connects.
            by_another: whether an external autoscaler writes the size, from a value that it read
                some time ago.
        """
        self.start_s = start_s
        self._by_another = by_another
        self._must_adopt_marks = by_another
        self._published = (replicas, now_s)
        self._size, self._grew_s = replicas, float("-inf")
        self._target_s = target_s
        self._stabilization_s = stabilization_s
        self._hysteresis = PoolSizer(target_s=target_s, stabilization_s=stabilization_s)
        self._hysteresis.remember(replicas, now_s)
        self._requested: deque[float] = deque()
        self._known: set[str] | None = None
        self._absent_since: dict[str, float] = {}
        self._leaving: dict[str, float] = {}
        self._marked: set[str] = set()

    def plan(
        self, view: PoolView, backlog: Backlog, seen: PoolObservation, now_s: float
    ) -> ScalingPlan:
        """Returns the changes to make now.

        Args:
            view: the pool's bounds.
            backlog: predicted work for the pool.
            seen: its observed state.
            now_s: the time.
        """
        self._learn(seen, now_s)
        self._track_growth(seen, now_s)
        wanted, needed = self._hysteresis.sizes(view, backlog, seen.replicas, now_s)
        if not seen.steady:
            wanted = needed = max(wanted, seen.replicas)
        if self._by_another and (published := self._stable_target(seen, wanted, now_s)) > wanted:
            wanted = needed = published
        if self._must_adopt_marks:
            if seen.pods is None:
                return ScalingPlan(
                    wanted, needs_pods=True, external_target=max(wanted, seen.replicas)
                )
            self._adopt_marks(seen.pods, now_s)
        if needed < seen.replicas or self._has_surplus(seen, wanted):
            return self._shrink(view, backlog, seen, wanted, needed, now_s)
        return self._grow(backlog, seen, wanted, now_s)

    def _stable_target(self, seen: PoolObservation, wanted: int, now_s: float) -> int:
        """Returns the size to publish: a larger one stands until the pool has reached it.

        An external autoscaler that reads five late, and then four, would remove one of the five
        workers by its own choice, which may be a busy one.
        """
        published, since_s = self._published
        if (
            wanted < published
            and seen.replicas < published
            and now_s - since_s <= AUTOSCALER_REACTION_S
        ):
            return published
        self._published = (wanted, now_s)
        return wanted

    def _track_growth(self, seen: PoolObservation, now_s: float) -> None:
        """Records when an external autoscaler enlarged the pool: the new pods appear soon after."""
        if self._by_another and seen.replicas > self._size:
            self._grew_s = now_s
        elif seen.replicas < self._size or now_s - self._grew_s > AUTOSCALER_REACTION_S:
            self._grew_s = float("-inf")
        self._size = seen.replicas

    def _pods_expected(self, alive: int, seen: PoolObservation) -> int:
        """Returns the number of pods, with those that an external autoscaler just requested."""
        if alive >= seen.replicas:
            self._grew_s = float("-inf")
        return alive if self._grew_s == float("-inf") else seen.replicas

    def _adopt_marks(self, pods: Sequence[PodObservation], now_s: float) -> None:
        """Adopts an earlier leader's marks: an external autoscaler may act on its last value."""
        marked = [p.name for p in _alive(pods) if p.cost == MARKED]
        self._leaving, self._marked = dict.fromkeys(marked, now_s), set(marked)
        self._must_adopt_marks = False

    def _has_surplus(self, seen: PoolObservation, wanted: int) -> bool:
        """Returns whether a ReplicaSet that shrinks may still have to choose the pods to delete."""
        return bool(self._leaving) and seen.pods is not None and len(_alive(seen.pods)) > wanted

    def _learn(self, seen: PoolObservation, now_s: float) -> None:
        """Updates the start time by how long new workers took from request to connection."""
        names = set(seen.workers)
        for _ in names - (self._known if self._known is not None else names):
            if self._requested:
                # Capped: the wait of a worker that came after an outage predicts nothing.
                took_s = min(now_s - self._requested.popleft(), longest_s(self.start_s))
                self.start_s += LEARNING_RATE * (took_s - self.start_s)
        self._known = names

    def _grow(
        self, backlog: Backlog, seen: PoolObservation, wanted: int, now_s: float
    ) -> ScalingPlan:
        # An external autoscaler may still shrink the pool by an earlier value: then the marked pods
        # must be the ones that are deleted.
        if wanted > seen.replicas and not self._by_another:
            self._leaving.clear()
        for name, since_s in list(self._leaving.items()):
            if now_s - since_s > AUTOSCALER_REACTION_S:
                del self._leaving[name]
        marks = {n: UNMARKED for n in self._marked - self._leaving.keys() if n in seen.workers}
        self._marked &= self._leaving.keys()
        cordon = frozenset(self._leaving)
        if wanted <= seen.replicas:
            return ScalingPlan(wanted, cordon, marks, external_target=wanted)
        self._requested.extend([now_s] * (wanted - seen.replicas))
        # Each round requests them again until an external autoscaler has read the value.
        while len(self._requested) > max(0, wanted - len(seen.workers)):
            self._requested.pop()
        reason = self._growth_reason(backlog, seen, wanted)
        return ScalingPlan(wanted, cordon, marks, wanted, reason, external_target=wanted)

    def _growth_reason(self, backlog: Backlog, seen: PoolObservation, wanted: int) -> str:
        if not backlog.actions and backlog.seconds <= seen.replicas * self._target_s:
            if backlog.serving >= wanted:
                return f"replicas of services need {wanted} workers"
            if backlog.for_open_steps >= wanted:
                return f"{wanted} workers keep the engines in demand prewarmed"
            if backlog.overflow:
                return f"{wanted} workers, {backlog.overflow} of them to help a pool that is full"
            if backlog.steady >= wanted:
                return f"{wanted} workers pay at the rate at which work arrives"
            return f"the pool has at least {wanted} workers"
        pressed = ", deadlines are near" if backlog.deadline_workers >= wanted else ""
        return (
            f"{backlog.seconds:.0f} s of work for {seen.replicas} workers, "
            f"{backlog.actions} actions wait{pressed}"
        )

    def _shrink(
        self,
        view: PoolView,
        backlog: Backlog,
        seen: PoolObservation,
        wanted: int,
        needed: int,
        now_s: float,
    ) -> ScalingPlan:
        most = max(wanted, seen.replicas)
        if seen.pods is None:
            return ScalingPlan(
                wanted, frozenset(self._leaving), needs_pods=True, external_target=most
            )
        self._requested.clear()
        alive = _alive(seen.pods)
        idle = [p for p in alive if not self._may_be_busy(p, seen, now_s)]
        ranked = sorted(idle, key=lambda p: self._removal_order(p, seen))
        surplus = max(0, len(alive) - wanted)
        delayed = {
            p.name: self._leaving[p.name]
            for p in ranked[surplus:]
            if self._may_be_deleted(p.name, now_s)
        }
        to_remove = [*ranked[:surplus], *(p for p in ranked[surplus:] if p.name in delayed)]
        names = {p.name for p in to_remove}
        confirmed = [p for p in to_remove if p.cost == MARKED and p.name in self._leaving]
        self._leaving = {**dict.fromkeys(names, now_s), **delayed}
        marks = {p.name: MARKED for p in to_remove if p.cost != MARKED}
        marks |= {p.name: UNMARKED for p in alive if p.cost == MARKED and p.name not in names}
        self._marked = names
        cordon = frozenset(names | _busy_above(min(needed, view.maximum), alive, names, seen))
        size = max(wanted, self._pods_expected(len(alive), seen) - len(confirmed))
        if size >= seen.replicas:
            return ScalingPlan(wanted, cordon, marks, external_target=most)
        reason = f"{wanted} workers have been enough for {self._stabilization_s:.0f} s"
        if seen.replicas > view.maximum:
            reason = f"the pool has at most {view.maximum} workers"
        return ScalingPlan(wanted, cordon, marks, size, reason, external_target=size)

    def _may_be_deleted(self, name: str, now_s: float) -> bool:
        """Returns whether an external autoscaler may still act on the value that marked a pod."""
        since_s = self._leaving.get(name, float("-inf"))
        return self._by_another and now_s - since_s <= AUTOSCALER_REACTION_S

    def _may_be_busy(self, pod: PodObservation, seen: PoolObservation, now_s: float) -> bool:
        worker = seen.workers.get(pod.name)
        if worker is not None:
            self._absent_since.pop(pod.name, None)
            return worker.assigned > 0
        if not pod.ready:
            return False
        since_s = self._absent_since.setdefault(pod.name, now_s)
        return now_s - since_s < ABSENT_S

    def _removal_order(
        self, pod: PodObservation, seen: PoolObservation
    ) -> tuple[bool, bool, int, float, str]:
        """Returns the sort key: chosen before, not ready, few warm bytes, youngest first."""
        worker = seen.workers.get(pod.name)
        warm = worker.warm_bytes if worker is not None else 0
        return pod.name not in self._leaving, pod.ready, warm, -pod.created_s, pod.name


def _busy_above(
    most: int, alive: Sequence[PodObservation], to_remove: set[str], seen: PoolObservation
) -> set[str]:
    """Returns the busy workers above ``most``: cordoned, and removed after what they run ends.

    Those with replicas of services come last: what they run does not end.
    """
    surplus = len(alive) - most - len(to_remove)
    busy = [p.name for p in alive if p.name in seen.workers and p.name not in to_remove]

    def order(name: str) -> tuple[bool, int, str]:
        worker = seen.workers[name]
        return worker.serves, worker.assigned, name

    return set(sorted(busy, key=order)[: max(0, surplus)])


def _alive(pods: Sequence[PodObservation]) -> list[PodObservation]:
    return [p for p in pods if not p.leaving]
