"""How many workers a pool should have, and which of them go: pure, a plan a tick.

Level-triggered: a plan follows from what is seen now and little that may be lost. A worker goes in
two ticks. First it is cordoned, so that it takes nothing new, and its pod is marked with the lowest
deletion cost; then, if it is still idle, the pool's size shrinks by one. Who runs something is
never marked, so the ReplicaSet has always somebody else to take; where more run something than are
needed, some are cordoned, end what they run and go then.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.hysteresis import Hysteresis
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_supply import longest_s

FIRST_START_S = 30.0
"""Predicted seconds until a worker connects, before one was seen to."""
LEARNING_RATE = 0.3
MARKED, UNMARKED = -1000, 0
"""Deletion costs: of those that are to go, and of all others."""
ABSENT_S = 330.0
"""A pod that is ready without a connected worker may have work for so long: until its agent gives
up looking for a control plane (``--orphan-timeout``), and some time to end."""
GONE_WITHIN_S = 60.0
"""A ReplicaSet that was told to shrink has chosen by then, and another's autoscaler has heard of a
figure: a scrape, its own rounds."""


@dataclass(frozen=True, slots=True)
class PodObservation:
    """A pod of the pool.

    Attributes:
        ready: its worker was welcomed since it started.
        leaving: it is being deleted.
        cost: its deletion cost.
        created_s: when it was made.
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
        held: attempts that it holds.
        warm_bytes: of components near its engines.
    """

    held: int = 0
    warm_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """What there is of a pool.

    Attributes:
        replicas: how many workers its Deployment asks for.
        pods: None where nobody looked; they are needed only where the pool is too large.
        workers: the connected ones by name, which is the pod's.
        steady: whether the fabric knows what its workers run (not right after a takeover).
    """

    replicas: int
    workers: Mapping[str, WorkerObservation]
    pods: Sequence[PodObservation] | None = None
    steady: bool = True


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """What is to be done, in this order.

    Attributes:
        wanted: how many workers there should be.
        cordon: those that take nothing new, all of the pool's; who is not named does.
        marks: deletion costs to set.
        replicas: the size to write; None where it stays.
        reason: why the size changes, as a sentence.
        look: whether pods must be seen for more to be done.
        told: what another's autoscaler may bring the pool to: ``wanted``, and above it those that
            are not cordoned and marked yet, of whom a ReplicaSet could take a busy one.
    """

    wanted: int
    cordon: frozenset[str] = frozenset()
    marks: Mapping[str, int] = field(default_factory=dict)
    replicas: int | None = None
    reason: str = ""
    look: bool = False
    told: int = 0


class PoolScaler:
    """Plans the size of one pool; may be lost without harm."""

    def __init__(
        self,
        *,
        target_s: float,
        calm_s: float,
        replicas: int,
        now_s: float,
        start_s: float = FIRST_START_S,
        by_another: bool = False,
    ) -> None:
        """Takes what the pool asks for, and what there is when it is first seen.

        Args:
            target_s: predicted work that one worker may have before it.
            calm_s: how long fewer must have been enough; counts from now on at the earliest.
            replicas: the pool's size now.
            now_s: the time.
            start_s: predicted seconds until a worker connects.
            by_another: an autoscaler writes the size, by what it was told a while ago.
        """
        self.start_s = start_s
        self._by_another = by_another
        self._taken_over = by_another
        self._promised = (replicas, now_s)
        self._size, self._grew_s = replicas, float("-inf")
        self._target_s = target_s
        self._calm_s = calm_s
        self._hysteresis = Hysteresis(target_s=target_s, calm_s=calm_s)
        self._hysteresis.remember(replicas, now_s)
        self._asked: deque[float] = deque()
        self._known: set[str] | None = None
        self._absent_since: dict[str, float] = {}
        self._leaving: dict[str, float] = {}
        self._marked: set[str] = set()

    def plan(
        self, view: PoolView, backlog: Backlog, seen: PoolObservation, now_s: float
    ) -> ScalingPlan:
        """What is to be done now.

        Args:
            view: the pool's bounds.
            backlog: what it has before it.
            seen: what there is of it.
            now_s: the time.
        """
        self._learn(seen, now_s)
        self._follow(seen, now_s)
        wanted, needed = self._hysteresis.sizes(view, backlog, seen.replicas, now_s)
        if not seen.steady:
            wanted = needed = max(wanted, seen.replicas)
        if self._by_another and (promised := self._as_promised(seen, wanted, now_s)) > wanted:
            wanted = needed = promised
        if self._taken_over:
            if seen.pods is None:
                return ScalingPlan(wanted, look=True, told=max(wanted, seen.replicas))
            self._take_over(seen.pods, now_s)
        if needed < seen.replicas or self._surplus(seen, wanted):
            return self._shrink(view, backlog, seen, wanted, needed, now_s)
        return self._grow(backlog, seen, wanted, now_s)

    def _as_promised(self, seen: PoolObservation, wanted: int, now_s: float) -> int:
        """Holds on to a larger figure until the pool is as large: it will be, for a while.

        Who hears late of five, and then that four are enough, would take one of five by himself.
        """
        told, since_s = self._promised
        if wanted < told and seen.replicas < told and now_s - since_s <= GONE_WITHIN_S:
            return told
        self._promised = (wanted, now_s)
        return wanted

    def _follow(self, seen: PoolObservation, now_s: float) -> None:
        """Notes when another's autoscaler asked for more: their pods are there in a moment."""
        if self._by_another and seen.replicas > self._size:
            self._grew_s = now_s
        elif seen.replicas < self._size or now_s - self._grew_s > GONE_WITHIN_S:
            self._grew_s = float("-inf")
        self._size = seen.replicas

    def _there(self, alive: int, seen: PoolObservation) -> int:
        """The pods that there are, and those that another's autoscaler has just asked for."""
        if alive >= seen.replicas:
            self._grew_s = float("-inf")
        return alive if self._grew_s == float("-inf") else seen.replicas

    def _take_over(self, pods: Sequence[PodObservation], now_s: float) -> None:
        """Another's autoscaler may have been told by an earlier leader who can go."""
        marked = [p.name for p in _alive(pods) if p.cost == MARKED]
        self._leaving, self._marked = dict.fromkeys(marked, now_s), set(marked)
        self._taken_over = False

    def _surplus(self, seen: PoolObservation, wanted: int) -> bool:
        """Whether a ReplicaSet that was told to shrink still has a choice to make."""
        return bool(self._leaving) and seen.pods is not None and len(_alive(seen.pods)) > wanted

    def _learn(self, seen: PoolObservation, now_s: float) -> None:
        """How long new workers took to connect since they were asked for."""
        names = set(seen.workers)
        for _ in names - (self._known if self._known is not None else names):
            if self._asked:
                # Of one that came after an outage the rest says nothing of the next.
                took_s = min(now_s - self._asked.popleft(), longest_s(self.start_s))
                self.start_s += LEARNING_RATE * (took_s - self.start_s)
        self._known = names

    def _grow(
        self, backlog: Backlog, seen: PoolObservation, wanted: int, now_s: float
    ) -> ScalingPlan:
        # Another's autoscaler may still shrink the pool by an earlier figure: then those that are
        # marked must be the ones to go.
        if wanted > seen.replicas and not self._by_another:
            self._leaving.clear()
        for name, since_s in list(self._leaving.items()):
            if now_s - since_s > GONE_WITHIN_S:
                del self._leaving[name]
        marks = {n: UNMARKED for n in self._marked - self._leaving.keys() if n in seen.workers}
        self._marked &= self._leaving.keys()
        cordon = frozenset(self._leaving)
        if wanted <= seen.replicas:
            return ScalingPlan(wanted, cordon, marks, told=wanted)
        self._asked.extend([now_s] * (wanted - seen.replicas))
        # Asked again in every round until another's autoscaler has heard of it.
        while len(self._asked) > max(0, wanted - len(seen.workers)):
            self._asked.pop()
        reason = self._why_more(backlog, seen, wanted)
        return ScalingPlan(wanted, cordon, marks, wanted, reason, told=wanted)

    def _why_more(self, backlog: Backlog, seen: PoolObservation, wanted: int) -> str:
        if not backlog.actions and backlog.seconds <= seen.replicas * self._target_s:
            if backlog.warm >= wanted:
                return f"{wanted} workers hold open the engines of what is in demand"
            return f"the pool has {wanted} workers at least"
        pressed = ", deadlines press" if backlog.pressed >= wanted else ""
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
            return ScalingPlan(wanted, frozenset(self._leaving), look=True, told=most)
        self._asked.clear()
        alive = _alive(seen.pods)
        idle = [p for p in alive if not self._may_be_busy(p, seen, now_s)]
        ranked = sorted(idle, key=lambda p: self._order(p, seen))
        over = max(0, len(alive) - wanted)
        kept = {p.name: self._leaving[p.name] for p in ranked[over:] if self._kept(p.name, now_s)}
        going = [*ranked[:over], *(p for p in ranked[over:] if p.name in kept)]
        names = {p.name for p in going}
        sure = [p for p in going if p.cost == MARKED and p.name in self._leaving]
        self._leaving = {**dict.fromkeys(names, now_s), **kept}
        marks = {p.name: MARKED for p in going if p.cost != MARKED}
        marks |= {p.name: UNMARKED for p in alive if p.cost == MARKED and p.name not in names}
        self._marked = names
        cordon = frozenset(names | _too_many(min(needed, view.maximum), alive, names, seen))
        size = max(wanted, self._there(len(alive), seen) - len(sure))
        if size >= seen.replicas:
            return ScalingPlan(wanted, cordon, marks, told=most)
        reason = f"{wanted} workers have been enough for {self._calm_s:.0f} s"
        if backlog.left:
            reason = "the engines in demand have moved to a cheaper pool"
        if seen.replicas > view.maximum:
            reason = f"the pool has {view.maximum} workers at most"
        return ScalingPlan(wanted, cordon, marks, size, reason, told=size)

    def _kept(self, name: str, now_s: float) -> bool:
        """Whether another's autoscaler may still act on having been told that this one can go."""
        since_s = self._leaving.get(name, float("-inf"))
        return self._by_another and now_s - since_s <= GONE_WITHIN_S

    def _may_be_busy(self, pod: PodObservation, seen: PoolObservation, now_s: float) -> bool:
        worker = seen.workers.get(pod.name)
        if worker is not None:
            self._absent_since.pop(pod.name, None)
            return worker.held > 0
        if not pod.ready:
            return False
        since_s = self._absent_since.setdefault(pod.name, now_s)
        return now_s - since_s < ABSENT_S

    def _order(
        self, pod: PodObservation, seen: PoolObservation
    ) -> tuple[bool, bool, int, float, str]:
        """Who goes first: who was chosen before, who is not up, who has least to lose."""
        worker = seen.workers.get(pod.name)
        warm = worker.warm_bytes if worker is not None else 0
        return pod.name not in self._leaving, pod.ready, warm, -pod.created_s, pod.name


def _too_many(
    most: int, alive: Sequence[PodObservation], going: set[str], seen: PoolObservation
) -> set[str]:
    """Busy workers above what is needed, or may be: they end what they run, and then go."""
    over = len(alive) - most - len(going)
    busy = [p.name for p in alive if p.name in seen.workers and p.name not in going]
    return set(sorted(busy, key=lambda n: (seen.workers[n].held, n))[: max(0, over)])


def _alive(pods: Sequence[PodObservation]) -> list[PodObservation]:
    return [p for p in pods if not p.leaving]
