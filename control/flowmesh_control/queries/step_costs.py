"""Predicts what the steps of a planned run cost and take, each with a range."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from flowmesh_api.v1.plan import NOTHING
from flowmesh_control.queries.expected_content import ExpectedContent, is_unsized
from flowmesh_core.costmodel.model import CostKey, Prediction
from flowmesh_core.dataset.chunking import AVERAGE_ROWS
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.action_spec import component_ports, shape_of, work_of
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet, unmet_remedy
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import Artifact

if TYPE_CHECKING:
    from flowmesh_core.machine.events import ActionKey
    from flowmesh_core.units import Digest

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
    """Predicts the steps of one run, in the order of its plan.

    Attributes:
        running: what each worker runs of all steps so far; engines load beside it.
    """

    def __init__(self, state: State, scratch: State, run: Run, fleet: OpenFleet) -> None:
        """Begins with the first step.

        Args:
            state: the machine's, with the cost model and the workers.
            scratch: the state in which the run is walked.
            run: the run.
            fleet: what it may use.
        """
        self._state = state
        self._scratch = scratch
        self._run = run
        self._fleet = fleet
        self._content = ExpectedContent(run)
        self._opened: set[tuple[str, Digest]] = set()
        self._charged: dict[ActionKey, StepCost] = {}
        self.running: defaultdict[str, SecondsRange] = defaultdict(SecondsRange)
        for worker in state.workers.values():
            self._opened |= {(worker.name, i.signature) for i in worker.instances if not i.asleep}

    def of(self, step: StepRun) -> StepCost:
        """Returns the cost of what of a step has to run, without what steps before it pay for."""
        inputs = self._content.inputs(step)
        self._content.add(step, inputs)
        cost = StepCost()
        busy_s: defaultdict[str, float] = defaultdict(float)
        keys = {p.key for p in step.parts.values() if p.result is None and p.key is not None}
        shared = [self._charged[key] for key in keys if key in self._charged]
        charged = keys - self._charged.keys()
        known = [a for key in charged if (a := self._scratch.actions.get(key)) is not None]
        for action in known:
            able = self._able(cost, action.info)
            if able:
                self._charge(cost, busy_s, able, action.info, action.spec.work, among=len(known))
        if not step.ended and not keys:
            self._expect(cost, busy_s, step, inputs)
        cost.seconds = max(busy_s.values(), default=NOTHING)
        if cost.busy.seconds:
            cost.low_s = cost.seconds * cost.busy.low_s / cost.busy.seconds
            cost.high_s = cost.seconds * cost.busy.high_s / cost.busy.seconds
        self._charged |= dict.fromkeys(charged, cost)
        for other in shared:
            cost.wait_for(other)
        cost.is_shared = bool(shared) and not charged
        return cost

    def _expect(
        self,
        cost: StepCost,
        busy_s: "defaultdict[str, float]",
        step: StepRun,
        inputs: dict[str, Artifact],
    ) -> None:
        """Adds the actions that a step is expected to have once its inputs are known."""
        loaded, mixed = component_ports(step.contract, inputs)
        cost.unsized = any(is_unsized(inputs[port]) for port in loaded)
        info = shape_of(self._scratch, self._run, step, inputs).info
        able = self._able(cost, info)
        if not able:
            return
        rows = inputs[step.contract.row_wise].rows if step.contract.row_wise in inputs else 0
        parts = max(1, ceil(rows / AVERAGE_ROWS)) if step.contract.row_wise else 1
        work = work_of(
            step.contract, step.plan.params, _divided(inputs, parts, loaded), loaded, mixed
        )
        groups = min(parts, _GROUPS_MAX)
        for _ in range(groups):
            self._charge(cost, busy_s, able, info, work, among=parts, count=parts / groups)
        cost.samples = 0

    def _able(self, cost: StepCost, info: SignatureInfo) -> list[WorkerShape]:
        cost.signatures.add(info.signature)
        able = self._fleet.able(info)
        if self._fleet.connected and not able:
            cost.missing = unmet_remedy(info.requirement, self._fleet.connected)
        return able

    def _charge(
        self,
        cost: StepCost,
        busy_s: "defaultdict[str, float]",
        able: Sequence[WorkerShape],
        info: SignatureInfo,
        work: WorkSize,
        *,
        among: int,
        count: float = 1.0,
    ) -> None:
        """Adds ``count`` equal actions, of ``among`` side by side, to where they end first."""
        key, model = CostKey.of(info), self._state.model
        batch = float(min(among, max(1, info.capacity)))
        found = {s.name: model.predict(key, s.device_class, work, batch=batch) for s in able}
        shape = min(able, key=lambda s: busy_s[s.name] + found[s.name].seconds)
        prediction = found[shape.name]
        opens = (shape.name, info.signature) not in self._opened
        self._opened.add((shape.name, info.signature))
        runs_s = prediction.seconds * prediction.share * count
        self.running[shape.name].add(runs_s, _factor(prediction))
        seconds = runs_s + prediction.load_s * opens
        busy_s[shape.name] += seconds
        _count(cost, shape, prediction, seconds)


def _divided(
    inputs: dict[str, Artifact], parts: int, loaded: tuple[str, ...]
) -> dict[str, Artifact]:
    """Returns the inputs of one part of a step."""
    return {
        port: a
        if port in loaded
        else msgspec.structs.replace(
            a, rows=ceil(a.rows / parts), size_bytes=ceil(a.size_bytes / parts)
        )
        for port, a in inputs.items()
    }


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
