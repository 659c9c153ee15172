"""Replays recorded runs under another policy, on other workers or at other prices.

The shipped machine and scheduler run them in virtual time (``recorded_work``, ``recorded_pace``),
on the recorded workers or on given pools. Called by ``fmesh replay`` and by the calibration.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, FiniteFloat, ValidationError

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.trace import RecordedRun
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.costmodel.state import encode_model
from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_core.machine.events import Submitted
from flowmesh_core.sharing.scopes import ScopePlan, namespace_scope
from flowmesh_core.units import NANO_PER_USD
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.models.download_rates import UNLIMITED
from flowmesh_sim.replay.recorded_pace import RecordedDurations
from flowmesh_sim.replay.recorded_work import (
    RecordedWork,
    RecordedWorkModel,
    require_known,
    why_left_out,
)
from flowmesh_sim.replay.recording import Recording
from flowmesh_sim.run.measurements import SimulationResult, spread
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import (
    ControlSpec,
    Dollars,
    PoolSpec,
    Positive,
    Scenario,
    ScenarioModel,
    problems_of,
    read_document,
)

Shared = Literal["recorded", "never", "private", "all"]
SECONDS_PER_HOUR = 3600.0
HOST_MIB = 131072
LOCAL_FACTS = {**UNLIMITED, "network.request_s": 0.001}
"""Recorded times include fetches of inputs, so fetches take no time here."""


class ReplaySpec(ScenarioModel):
    """The changes of a replay.

    Attributes:
        policy: the scheduling policy.
        sharing: ``recorded`` keeps the recorded scopes.
        pools: replace the recorded workers.
        prices: dollars per hour of one device, by its class; replace the pools' prices.
        facts: constants by path, as in a scenario.
    """

    policy: str = "shipped"
    sharing: Shared = "recorded"
    pools: tuple[PoolSpec, ...] = ()
    prices: dict[str, Dollars] = Field(default={})
    facts: dict[str, FiniteFloat] = Field(default={})
    control: ControlSpec = ControlSpec()
    seed: int = 0
    limit_s: Positive = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class ReplayTotals:
    """The cost and duration of runs, recorded or simulated.

    Attributes:
        usd: of all workers from the first submission to the last end; of recorded workers, those
            with an attempt.
        receipts_usd: the part that runs paid.
        joules: the attempts' energy of recorded runs, the workers' of simulated ones.
        latency_s: mean, p50 and p99 of the runs.
        goodput_per_min: actions per minute of runs that succeeded within their deadlines.
    """

    runs: int
    makespan_s: float
    usd: float
    receipts_usd: float
    joules: float
    latency_s: dict[str, float]
    goodput_per_min: float
    executed: int
    hits: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """The recorded and the replayed totals.

    Attributes:
        unknown: the number of cache hits that no recorded run executed.
        result: all measurements of the simulation.
        left_out: why runs without a recorded action are not among the totals, by their number in
            the order of submission, from 1.
    """

    policy: str
    recorded: ReplayTotals
    replayed: ReplayTotals
    unknown: int
    result: SimulationResult
    left_out: dict[int, str] = field(default_factory=dict)


class _Load:
    """Submits the recorded runs at their recorded times."""

    def __init__(self, fabric: SimulatedFabric, work: RecordedWork, sharing: Shared) -> None:
        self._fabric = fabric
        self.remaining = 0
        for run in work.runs:
            plan, artifacts = work.plan(run, share=sharing != "never")
            if not plan.steps:
                continue  # the run had only cache hits
            self.remaining += 1
            submitted = Submitted(run.run, plan, 0.0, _scopes(run, sharing), artifacts)
            fabric.engine.at(run.created_s, self._submit, submitted)

    def _submit(self, s: Submitted) -> None:
        self.remaining -= 1
        created_s = self._fabric.wall_s()
        self._fabric.submit(Submitted(s.uid, s.plan, created_s, s.scopes, s.artifacts))


def _scopes(run: RecordedRun, sharing: Shared) -> ScopePlan:
    own = namespace_scope(run.tenant)
    if sharing == "recorded":
        return ScopePlan(run.publish, run.lookup, run.private)
    if sharing == "all":
        return ScopePlan("all", ("all",), own)
    return ScopePlan(own, (own,), own)


def read_replay(path: Path) -> ReplaySpec:
    """Reads the file of a replay's changes.

    Raises:
        SpecError: the file is not valid; lists every problem with its place.
    """
    return replay_of(read_document(path) or {}, str(path))


def replay_of(document: Any, where: str = "replay") -> ReplaySpec:
    """Validates a replay's changes given as plain values.

    Raises:
        SpecError: the values are not valid.
    """
    try:
        return ReplaySpec.model_validate(document)
    except ValidationError as e:
        raise SpecError(problems_of(e, where)) from e


def replay(
    recording: Recording,
    spec: ReplaySpec,
    *,
    paces: RecordedDurations | None = None,
) -> Replayed:
    """Simulates recorded runs.

    Args:
        recording: the recorded runs.
        spec: the changes.
        paces: if given, actions take the times that these predict instead of the recorded ones.

    Raises:
        FlowMeshError: nothing can be replayed, or an action fits no pool.
        SpecError: the specification is not valid.
    """
    work = RecordedWork(recording)
    require_known(work)
    durations = paces
    if durations is None:
        durations = RecordedDurations(work.engines.values())
        durations.train(work.attempts())
    scenario = _scenario(work, spec)
    _fits(work, scenario)
    simulation = Simulation(
        scenario,
        catalog=Catalog(work.contracts()),
        duties=partial(RecordedWorkModel, work=work, paces=durations, predict=paces is not None),
        model=encode_model(durations.model),
    )
    simulation.loads.append(_Load(simulation.fabric, work, spec.sharing))
    result = simulation.run()
    left_out = {n: why_left_out(r) for n, r in enumerate(work.runs, 1) if not r.parts}
    figures = recorded_figures(work), _simulated(work, result)
    return Replayed(spec.policy, *figures, work.unknown, result, left_out)


def _scenario(work: RecordedWork, spec: ReplaySpec) -> Scenario:
    pools = spec.pools or tuple(recorded_pools(work))
    priced = tuple(
        p.model_copy(update={"price_usd_per_hour": spec.prices[p.device]})
        if p.device in spec.prices
        else p
        for p in pools
    )
    unknown = sorted(set(spec.prices) - {p.device for p in pools})
    if unknown:
        raise SpecError([Problem(f"prices.{unknown[0]}", "no pool has such devices")])
    try:
        return Scenario.model_validate(
            {
                "name": "replay",
                "pools": priced,
                "load": (),
                "control": spec.control,
                "seed": spec.seed,
                "policy": spec.policy,
                "facts": {**LOCAL_FACTS, **spec.facts},
                "limitS": spec.limit_s,
            }
        )
    except ValidationError as e:
        raise SpecError(problems_of(e, "replay")) from e


def recorded_pools(work: RecordedWork) -> list[PoolSpec]:
    """Returns pools of the workers that ran an attempt, each from its first use on."""
    alike: dict[tuple[str, str, int, int, int], dict[str, float]] = {}
    for _, a in work.attempts():
        what = (a.pool, a.device_class, a.devices, a.device_memory_mib, a.price_nanousd_per_hour)
        first_s = alike.setdefault(what, {})
        first_s[a.worker] = min(a.assigned_s, first_s.get(a.worker, a.assigned_s))
    devices = read_constants().names("devices")
    found = []
    for n, ((pool, device_class, count, mib, price), first_s) in enumerate(sorted(alike.items())):
        device = device_class.removeprefix("nvidia-")
        if device not in devices:
            raise FlowMeshError(
                f"device class {device_class!r} is not known to the simulator",
                where=f"pool {pool}",
                remedy=f"give pools of known devices: {', '.join(devices)}",
            )
        found.append(
            PoolSpec.model_validate(
                {
                    "name": f"{pool or 'pool'}-{n}" if n else pool or "pool",
                    "device": device,
                    "workers": len(first_s),
                    "prewarm": False,
                    "afterS": max(0.0, min(first_s.values())),
                    "devices": max(1, count),
                    "hostMemoryMib": mib if device == "cpu" else HOST_MIB,
                    "priceUsdPerHour": price / NANO_PER_USD / max(1, count),
                }
            )
        )
    return found


def _fits(work: RecordedWork, scenario: Scenario) -> None:
    """Refuses pools on which an action does not fit."""
    facts = read_constants()
    most = max(
        p.host_memory_mib
        if p.device == "cpu"
        else int(facts.table[f"devices.{p.device}.memory_gib"].value * 1024)
        for p in scenario.pools
        if max(p.workers, p.maximum)
    )
    for _, a in work.attempts():
        if a.memory_mib > most:
            raise FlowMeshError(
                f"an action reserved {a.memory_mib} MiB; the largest pool has {most}",
                where="pools",
                remedy="give a pool with larger devices",
            )


def recorded_figures(work: RecordedWork) -> ReplayTotals:
    """Returns the totals of the recorded runs."""
    runs = [r for r in work.runs if r.parts]
    began_s = min((r.created_s for r in runs), default=0.0)
    makespan_s = max((r.ended_s for r in runs), default=0.0) - began_s
    workers = {a.worker: a.price_nanousd_per_hour for _, a in work.attempts()}
    attempts = {a.attempt: a for r in runs for a in r.attempts}
    parts = [p for r in runs for p in r.parts]
    return ReplayTotals(
        runs=len(runs),
        makespan_s=makespan_s,
        usd=sum(workers.values()) / NANO_PER_USD * makespan_s / SECONDS_PER_HOUR,
        receipts_usd=sum(r.paid_nanousd for r in runs) / NANO_PER_USD,
        joules=sum(a.joules for a in attempts.values()),
        latency_s=spread([r.ended_s - r.created_s for r in runs]),
        goodput_per_min=_goodput({r.run: r.ended_s - r.created_s for r in runs}, runs, makespan_s),
        executed=len(work.made),
        hits=sum(bool(p.hit) for p in parts),
    )


def _simulated(work: RecordedWork, r: SimulationResult) -> ReplayTotals:
    latency_s = {f.uid: f.latency_s for f in r.every if f.phase == Phase.SUCCEEDED}
    return ReplayTotals(
        runs=r.runs,
        makespan_s=r.makespan_s,
        usd=r.usd,
        receipts_usd=r.receipts_usd,
        joules=r.joules,
        latency_s=r.latency_s,
        goodput_per_min=_goodput(latency_s, work.runs, r.makespan_s),
        executed=r.executed,
        hits=sum(r.hits.values()),
    )


def _goodput(
    latency_s: dict[str, float],
    runs: tuple[RecordedRun, ...] | list[RecordedRun],
    makespan_s: float,
) -> float:
    """Returns the parts per minute of runs that succeeded within their deadlines."""
    good = [
        r
        for r in runs
        if r.run in latency_s
        and r.phase == Phase.SUCCEEDED
        and (not r.deadline_s or latency_s[r.run] <= r.deadline_s)
    ]
    return sum(len(r.parts) for r in good) / (makespan_s / 60.0) if makespan_s else 0.0
