"""Frozen copy of the forecast of demand: what arrived recently, and what open steps will need."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.graph.plan import ABSENT, FIRST, SKIP, Edge, StepSource, UtilityWeights
from flowmesh_core.machine.action_spec import component_ports, shape_of, work_of
from flowmesh_core.machine.fleet_snapshot import informed
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.machine.steps import artifact_of
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.protocol.results import Artifact

FIRST_GAP_S = 60.0
LOOK_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Demand:
    """A signature in demand.

    Attributes:
        gap_s: expected seconds between two arrivals.
        since_s: seconds since the last one.
        work, weights: of its last action.
        per_s: recent actions a second.
    """

    info: SignatureInfo
    gap_s: float
    since_s: float
    work: WorkSize
    weights: UtilityWeights
    per_s: float = 0.0


class DemandForecast:
    """Forecasts demand, and remembers what steps need once it is known."""

    def __init__(self) -> None:
        self._needs: dict[str, dict[str, tuple[Digest, WorkSize]]] = {}

    def now(self, state: State, now_s: float) -> list[Demand]:
        """Returns signatures with models that arrived recently or will."""
        found: dict[Digest, Demand] = {}
        for signature, arrivals in state.demand.now(now_s):
            if state.signatures[signature].components:
                since_s = now_s - arrivals.last_s
                info = informed(state, signature, arrivals.work.sequences)
                gap_s, per_s = max(arrivals.gap_s, since_s), arrivals.per_s(now_s)
                found[signature] = Demand(
                    info, gap_s, since_s, arrivals.work, arrivals.weights, per_s
                )
        for run, signature, work in self._predicted(state):
            known = found.get(signature)
            if known is None:
                info = informed(state, signature, work.sequences)
                found[signature] = Demand(info, FIRST_GAP_S, 0.0, work, run.plan.weights)
            elif known.since_s > 0.0:
                gap_s = known.gap_s
                if known.since_s > FIRST_GAP_S:
                    gap_s = min(gap_s, FIRST_GAP_S)
                found[signature] = replace(known, gap_s=gap_s, since_s=0.0)
        return list(found.values())

    def _predicted(self, state: State) -> Iterator[tuple[Run, Digest, WorkSize]]:
        """Yields what open steps need; a run that found all its results so far needs nothing."""
        self._needs = {uid: needs for uid, needs in self._needs.items() if uid in state.runs}
        for run in state.runs.values():
            if not run.has_executed or state.pauses(run):
                continue
            needs = self._needs.setdefault(run.uid, {})
            open_steps = [(path, step) for path, step in run.steps.items() if not step.ended]
            for path, step in open_steps[:LOOK_AHEAD]:
                need = needs.get(path) or _need(state, run, step)
                if need is not None:
                    needs[path] = need
                    yield run, *need


def _need(state: State, run: Run, step: StepRun) -> tuple[Digest, WorkSize] | None:
    models: dict[str, Artifact] = {}
    for edge in step.plan.edges:
        port = step.contract.input_port(edge.port)
        if port is None or not port.component:
            continue
        if not _is_decided(run, edge):
            return None
        artifact = artifact_of(run, edge)
        if artifact is not None:
            models[edge.port] = artifact
        elif edge.when_skipped != ABSENT:
            return None
    if not models:
        return None
    contract = step.contract
    work = work_of(contract, step.plan.params, models, *component_ports(contract, models))
    return shape_of(state, run, step, models).info.signature, work


def _is_decided(run: Run, edge: Edge) -> bool:
    if edge.pick != FIRST and edge.when_skipped == SKIP:
        return True
    return all(run.steps[s.step].ended for s in edge.sources if isinstance(s, StepSource))
