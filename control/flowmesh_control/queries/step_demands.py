"""What the steps of a planned run have to run: known actions, and those that are expected."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

import msgspec

from flowmesh_control.queries.expected_content import ExpectedContent, is_unsized
from flowmesh_core.dataset.chunking import AVERAGE_ROWS
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.action_spec import component_ports, shape_of, work_of
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class Actions:
    """``count`` equal actions."""

    info: SignatureInfo
    work: WorkSize
    count: int = 1


@dataclass(slots=True)
class StepDemand:
    """What one step has to run.

    Attributes:
        keys: of all its actions without a result.
        known: those that exist, by key.
        expected: those that it will have once its inputs are known; None where they are.
        unsized: whether the size of a model that it loads is not known.
    """

    keys: set[ActionKey] = field(default_factory=set)
    known: dict[ActionKey, Actions] = field(default_factory=dict)
    expected: Actions | None = None
    unsized: bool = False


class RunDemand:
    """What the steps of one run have to run."""

    def __init__(self, scratch: State, run: Run) -> None:
        """Looks at all steps, in the order of the plan.

        Args:
            scratch: the state in which the run was walked.
            run: the run.
        """
        self._scratch = scratch
        self._run = run
        self._content = ExpectedContent(run)
        self.steps = {step.plan.path: self._of(step) for step in run.steps.values()}
        self._related = _related(run)
        self._counts = _counts(self.steps)
        self._all = sum(self._counts.values(), Counter[Digest]())

    def beside(self, path: str) -> Counter[Digest]:
        """Returns how many actions of each signature run beside a step's own, these included.

        Steps that neither wait for it nor it for them use the same engine instances at once.
        """
        counts = self._all.copy()
        for other in self._related[path]:
            counts.subtract(self._counts[other])
        return counts

    def _of(self, step: StepRun) -> StepDemand:
        inputs = self._content.inputs(step)
        self._content.add(step, inputs)
        keys = {p.key for p in step.parts.values() if p.result is None and p.key is not None}
        found = {key: a for key in keys if (a := self._scratch.actions.get(key)) is not None}
        demand = StepDemand(keys, {k: Actions(a.info, a.spec.work) for k, a in found.items()})
        if not step.ended and not keys:
            self._expect(demand, step, inputs)
        return demand

    def _expect(self, demand: StepDemand, step: StepRun, inputs: dict[str, Artifact]) -> None:
        loaded, mixed = component_ports(step.contract, inputs)
        demand.unsized = any(is_unsized(inputs[port]) for port in loaded)
        info = shape_of(self._scratch, self._run, step, inputs).info
        rows = inputs[step.contract.row_wise].rows if step.contract.row_wise in inputs else 0
        parts = max(1, ceil(rows / AVERAGE_ROWS)) if step.contract.row_wise else 1
        part = _divided(inputs, parts, loaded)
        work = work_of(step.contract, step.plan.params, part, loaded, mixed)
        demand.expected = Actions(info, work, parts)


def _counts(demands: Mapping[str, StepDemand]) -> dict[str, Counter[Digest]]:
    """Returns each step's actions by signature; what several steps have counts for the first."""
    seen: set[ActionKey] = set()
    counts: dict[str, Counter[Digest]] = {}
    for path, demand in demands.items():
        counts[path] = Counter(a.info.signature for k, a in demand.known.items() if k not in seen)
        if demand.expected is not None:
            counts[path][demand.expected.info.signature] += demand.expected.count
        seen |= demand.keys
    return counts


def _related(run: Run) -> dict[str, set[str]]:
    """Returns for each step all that it waits for, and all that wait for it."""
    before: dict[str, set[str]] = {}
    for step in run.plan.steps:
        parents = step.parents()
        before[step.path] = set(parents).union(*(before[p] for p in parents if p in before))
    related = {path: set(others) for path, others in before.items()}
    for path, others in before.items():
        for other in others & related.keys():
            related[other].add(path)
    return related


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
