"""Demand for engines ahead of work: predicted from running workflows, prewarmed on workers.

If a step's models are known, its signature is known before its data exist. While an earlier step of
the run executes, a worker can fetch the models and load the engine (ADR 87).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from flowmesh_core.fleet.demand import FIRST_GAP_S, SignatureDemand
from flowmesh_core.graph.plan import ABSENT, FIRST, SKIP, Edge, StepSource
from flowmesh_core.machine.action_spec import component_ports, shape_of, work_of
from flowmesh_core.machine.commands import Prewarm
from flowmesh_core.machine.fleet_snapshot import informed
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.specs import PredictedDemand
from flowmesh_core.machine.state import State
from flowmesh_core.machine.steps import artifact_of
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.protocol.results import Artifact

LOOK_AHEAD = 64
"""The most open steps of a run that are examined, in the order of its plan."""


def forecast_demand(state: State, now_s: float) -> list[SignatureDemand]:
    """Returns the signatures with models that arrived recently or are predicted to arrive.

    The capacity signal uses them.
    """
    found = {}
    for signature, arrivals in state.demand.now(now_s):
        if state.signatures[signature].components:
            since_s = now_s - arrivals.last_s
            info = informed(state, signature, arrivals.work.sequences)
            gap_s = max(arrivals.gap_s, since_s)
            found[signature] = SignatureDemand(
                info,
                gap_s,
                since_s,
                arrivals.work,
                arrivals.weights,
                arrivals.per_s(now_s),
                arrivals.waiting_runs,
            )
    foreseen = Counter[Digest]()
    for run, one in _predicted(state):
        foreseen[one.signature] += 1
        known = found.get(one.signature)
        if known is None:
            info = informed(state, one.signature, one.work.sequences)
            found[one.signature] = SignatureDemand(
                info, FIRST_GAP_S, 0.0, one.work, run.plan.weights
            )
        elif known.since_s > 0.0:
            gap_s = min(known.gap_s, FIRST_GAP_S) if known.since_s > FIRST_GAP_S else known.gap_s
            found[one.signature] = dataclasses.replace(known, gap_s=gap_s, since_s=0.0)
    return [
        dataclasses.replace(one, foreseen=foreseen[signature]) if signature in foreseen else one
        for signature, one in found.items()
    ]


def _predicted(state: State) -> Iterator[tuple[Run, PredictedDemand]]:
    """Yields what open steps need, except in runs that are paused or had only hits so far."""
    for run in state.runs.values():
        if not run.has_executed or state.pauses(run):
            continue
        remaining = LOOK_AHEAD
        for step in run.steps.values():
            if step.ended:
                continue
            remaining -= 1
            if remaining < 0:
                break
            demand = step.foreseen = step.foreseen or _look_ahead(state, run, step)
            if demand is not None:
                yield run, demand


def _look_ahead(state: State, run: Run, step: StepRun) -> PredictedDemand | None:
    models: dict[str, Artifact] = {}
    for edge in step.plan.edges:
        port = step.contract.input_port(edge.port)
        if port is None or not port.component:
            continue
        if not _is_decided(run, edge):
            return None
        artifact = artifact_of(run, edge)
        if artifact is None and edge.when_skipped == ABSENT:
            continue
        if artifact is None:
            return None
        models[edge.port] = artifact
    if not models:
        return None
    contract = step.contract
    work = work_of(contract, step.plan.params, models, *component_ports(contract, models))
    return PredictedDemand(shape_of(state, run, step, models).info.signature, work)


def _is_decided(run: Run, edge: Edge) -> bool:
    """Whether a port's source is known. It is not while earlier sources may still be skipped."""
    if edge.pick != FIRST and edge.when_skipped == SKIP:
        return True
    steps = [run.steps[s.step] for s in edge.sources if isinstance(s, StepSource)]
    return all(step.ended for step in steps)


def send_prewarm_plans(state: State, wanted: Mapping[str, tuple[Digest, ...]]) -> None:
    """Sends each worker its prewarm plan if the plan has changed."""
    for name, worker in state.workers.items():
        signatures = wanted.get(name, ())
        if worker.prewarmed == signatures:
            continue
        worker.prewarmed = signatures
        specs = [state.openings[s] for s in signatures]
        memory = [informed(state, s, 1.0).requirement.memory_mib for s in signatures]
        sized = zip(specs, memory, strict=True)
        state.emit(Prewarm(name, tuple(replace(o, memory_mib=mib) for o, mib in sized)))


def prewarm_is_current(state: State, wanted: Mapping[str, tuple[Digest, ...]]) -> bool:
    """Whether every worker already has its present prewarm plan."""
    return all(w.prewarmed == wanted.get(name, ()) for name, w in state.workers.items())
