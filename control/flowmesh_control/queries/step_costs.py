"""Predicts what the steps of a planned run cost and take, each with a range."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from flowmesh_api.v1.plan import NOTHING
from flowmesh_control.queries.step_demands import Actions, RunDemand
from flowmesh_core.costmodel.model import CostKey, Prediction
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet, unmet_remedy
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.machine.events import ActionKey

MEASURED_FACTOR = 2.0**0.5
"""Upper end over prediction, and prediction over lower end, where such work has been observed."""
GUESS_FACTOR = 8.0**0.5
"""And where it has not: what a prior knows of a machine is within a factor of three."""
_GROUPS_MAX = 64
"""Expected actions of a step are given to workers in so many equal groups at most."""


@dataclass(frozen=True, slots=True)
class OpenFleet:
    """The shapes that a namespace may use.

    Attributes:
        connected: of connected workers.
        startable: of the workers that pools without any would start.
    """

    connected: list[WorkerShape]
    startable: list[WorkerShape]

    def able(self, info: SignatureInfo) -> list[WorkerShape]:
        """Returns the connected workers that can run work, else those that pools would start."""
        for shapes in (self.connected, self.startable):
            if found := [s for s in shapes if unmet(info.requirement, s) is None]:
                return found
        return []


@dataclass(slots=True)
class SecondsRange:
    """Predicted seconds, with the ends of their range."""

    seconds: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0

    def add(self, seconds: float, factor: float) -> None:
        """Adds a part that is expected within a factor."""
        self.seconds += seconds
        self.low_s += seconds / factor
        self.high_s += seconds * factor


@dataclass(slots=True)
class StepCost:
    """The predicted cost of one step's actions.

    Attributes:
        low_nanousd: the lower end of a range, ``high_nanousd`` the upper one; so do ``low_s`` and
            ``high_s``.
        busy: seconds of all workers together, which may cost nothing.
        unsized: whether the size of a model is not known.
        missing: what is missing where no worker can run it.
        is_shared: whether steps before it pay for all of its actions.
    """

    nanousd: float = 0.0
    seconds: float = NOTHING
    joules: float = NOTHING
    low_nanousd: float = 0.0
    high_nanousd: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    busy: SecondsRange = field(default_factory=SecondsRange)
    errors: list[float] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    samples: int = 0
    unsized: bool = False
    missing: str = ""
    is_shared: bool = False

    def wait_for(self, other: "StepCost") -> None:
        """Adds an action that another step pays for: it ends when that step does."""
        self.seconds = max(self.seconds, other.seconds)
        self.low_s = max(self.low_s, other.low_s)
        self.high_s = max(self.high_s, other.high_s)
        self.workers |= other.workers
        self.samples += other.samples
        self.missing = self.missing or other.missing

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing bounds what it may take: a model's size, or a worker, is not known."""
        return self.unsized or bool(self.signatures and not self.workers)


class StepCosts:
    """Predicts the steps of one run.

    Attributes:
        busy: what each worker runs of all steps, beside which engines load; and by worker and
            signature, what each engine instance loads and runs.
    """

    def __init__(self, state: State, scratch: State, run: Run, fleet: OpenFleet) -> None:
        """Looks at what the steps have to run.

        Args:
            state: the machine's, with the cost model and the workers.
            scratch: the state in which the run was walked.
            run: the run.
            fleet: what it may use.
        """
        self._state = state
        self._run = run
        self._fleet = fleet
        self._demand = RunDemand(scratch, run)
        self._opened: set[tuple[str, Digest]] = set()
        self._charged: dict[ActionKey, StepCost] = {}
        self._prices: dict[str, int] = {}
        self.busy: defaultdict[tuple[str, ...], SecondsRange] = defaultdict(SecondsRange)
        for worker in state.workers.values():
            self._opened |= {(worker.name, i.signature) for i in worker.instances if not i.asleep}

    @property
    def nanousd_per_s(self) -> float:
        """What all workers that are used cost together."""
        return sum(self._prices.values()) / 3600

    def all(self) -> dict[str, StepCost]:
        """Returns the cost of each step, in the order of the plan.

        Steps are taken as they are expected to begin: the first that needs an engine loads it.
        """
        parents = {step.path: step.parents() for step in self._run.plan.steps}
        children: defaultdict[str, list[str]] = defaultdict(list)
        for path, before in parents.items():
            for parent in before:
                children[parent].append(path)
        places = {path: place for place, path in enumerate(parents)}
        waits_for = {path: len(before) for path, before in parents.items()}
        begins_s = dict.fromkeys(parents, 0.0)
        ready = [(0.0, places[path], path) for path, before in parents.items() if not before]
        costs: dict[str, StepCost] = {}
        while ready:
            begin_s, _, path = heappop(ready)
            cost = costs[path] = self._of(path)
            for child in children[path]:
                begins_s[child] = max(begins_s[child], begin_s + cost.seconds)
                waits_for[child] -= 1
                if not waits_for[child]:
                    heappush(ready, (begins_s[child], places[child], child))
        return {path: costs[path] for path in parents}

    def _of(self, path: str) -> StepCost:
        """Returns the cost of what of a step has to run, without what steps before it pay for."""
        demand, beside = self._demand.steps[path], self._demand.beside(path)
        cost = StepCost(unsized=demand.unsized)
        busy_s: defaultdict[str, float] = defaultdict(float)
        shared = [self._charged[key] for key in demand.keys if key in self._charged]
        charged = demand.keys - self._charged.keys()
        for key, actions in demand.known.items():
            if key in charged:
                self._charge(cost, busy_s, actions, beside)
        if demand.expected is not None:
            self._charge(cost, busy_s, demand.expected, beside)
            cost.samples = 0
        cost.seconds = max(busy_s.values(), default=NOTHING)
        if cost.busy.seconds:
            cost.low_s = cost.seconds * cost.busy.low_s / cost.busy.seconds
            cost.high_s = cost.seconds * cost.busy.high_s / cost.busy.seconds
        self._charged |= dict.fromkeys(charged, cost)
        for other in shared:
            cost.wait_for(other)
        cost.is_shared = bool(shared) and not charged
        return cost

    def _able(self, cost: StepCost, info: SignatureInfo) -> list[WorkerShape]:
        cost.signatures.add(info.signature)
        able = self._fleet.able(info)
        if self._fleet.connected and not able:
            cost.missing = unmet_remedy(info.requirement, self._fleet.connected)
        return able

    def _charge(
        self,
        cost: StepCost,
        busy_s: defaultdict[str, float],
        actions: Actions,
        beside: Counter[Digest],
    ) -> None:
        """Adds equal actions, in groups, to the workers where they end first."""
        info, work = actions.info, actions.work
        able = self._able(cost, info)
        if not able:
            return
        key, model = CostKey.of(info), self._state.model
        batch = float(max(1, min(beside[info.signature], info.capacity)))
        found = {s.name: model.predict(key, s.device_class, work, batch=batch) for s in able}
        groups = min(actions.count, _GROUPS_MAX)
        for _ in range(groups):
            shape = min(able, key=lambda s: busy_s[s.name] + found[s.name].seconds)
            prediction = found[shape.name]
            runs_s = prediction.seconds * prediction.share * actions.count / groups
            self.busy[(shape.name,)].add(runs_s, _factor(prediction))
            opens = (shape.name, info.signature) not in self._opened
            self._opened.add((shape.name, info.signature))
            self._prices[shape.name] = shape.price_nanousd_per_hour
            seconds = runs_s + prediction.load_s * opens
            self.busy[shape.name, info.signature].add(seconds, _factor(prediction))
            busy_s[shape.name] += seconds
            _count(cost, shape, prediction, seconds)


def _factor(prediction: Prediction) -> float:
    return MEASURED_FACTOR if prediction.samples else GUESS_FACTOR


def _count(cost: StepCost, shape: WorkerShape, prediction: Prediction, seconds: float) -> None:
    nanousd = seconds * shape.price_nanousd_per_hour / 3600
    factor = _factor(prediction)
    cost.busy.add(seconds, factor)
    cost.nanousd += nanousd
    cost.low_nanousd += nanousd / factor
    cost.high_nanousd += nanousd * factor
    cost.joules += seconds * shape.power_w
    cost.workers.add(shape.name)
    cost.errors.append(prediction.error)
    cost.samples += prediction.samples
