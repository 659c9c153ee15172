"""Plans all services: how many replicas each component has, where they are, and why.

One pure function, called by the control plane once a second and by the simulator. In order: the
demand of each component; the split of each latency target, which rules out classes of device that
are too slow; the number of replicas that keep up; what runs stays; what is missing is placed
(``replica_placement``), with the workers that pools must have for it; what gains enough moves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from flowmesh_core.serving.plan.batch_caps import batch_cap
from flowmesh_core.serving.plan.capacity import UTILISATION
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView
from flowmesh_core.serving.plan.latency_split import LatencySplit, Variant, split_latency
from flowmesh_core.serving.plan.planned_rate import planned_per_s, requests_at_once
from flowmesh_core.serving.plan.replica_count import (
    ReplicaCapacity,
    ReplicaCount,
    count_expected,
    count_replicas,
)
from flowmesh_core.serving.plan.replica_moves import ReplicaMove
from flowmesh_core.serving.plan.replica_placement import ServingPlan, plan_replicas
from flowmesh_core.serving.plan.slo_verdict import ENOUGH
from flowmesh_core.serving.plan.stage_paths import chain_of, slowest_paths, stage_timings
from flowmesh_core.serving.plan.unloaded_request import unloaded_request_s
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.step_profile import TOKEN_MARGIN
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming, is_steady

EXPECTED_UNTIL = 100
"""Requests of a service until its measured rate alone counts, and its expected one no more."""
_NOTHING_S = 1e-9


@dataclass(frozen=True, slots=True)
class PlannedComponent:
    """A component, and what is known of its load.

    Attributes:
        demand: what a replica is; its ``wanted`` is the least number.
        most: the most replicas.
        rate_per_s: measured, in the unit of ``profiles``; None before it is.
        visits: how often a request calls it, in the mean.
        profiles: by device class; a class without one is not known yet.
        memory_cap: the largest batch that fits in memory.
        steps_per_call: how many batches of ``profiles`` a call takes, one after the other: 1, or of
            an engine the tokens of an answer in the mean; 0 where it is not known.
        estimates: profiles of further classes, which were not measured; see ``device_estimates``.
        calls_at_once: by device class, the most calls at once that ``profiles`` were learned of;
            none where their sizes say it.
    """

    demand: ComponentDemand
    most: int
    rate_per_s: float | None = None
    visits: float = 1.0
    profiles: Mapping[str, BatchProfile] = field(default_factory=dict)
    memory_cap: int = 1
    steps_per_call: float = 1.0
    estimates: Mapping[str, BatchProfile] = field(default_factory=dict)
    calls_at_once: Mapping[str, float] = field(default_factory=dict)

    def alone_s(self, classes: Collection[str]) -> float:
        """Returns the time of a call alone on the fastest of these classes; 0 if unknown."""
        known = [p.at(1) for c, p in self.profiles.items() if not classes or c in classes]
        return min(known, default=0.0) * self.steps_per_call


@dataclass(frozen=True, slots=True)
class PlannedService:
    """A service as the plan sees it.

    Attributes:
        components: at least one.
        latency_s: the target of a request; 0 for none.
        scale: in its place, how many times a request alone the target is; 0 for none. It is for a
            service with a ``graph``.
        variants: the ways of a request through the components, where there is a target; none where
            ``graph`` has them.
        graph: its stages.
        are_replies_in_time: whether most replies meet the target, by what routers counted.
        expected: requests that the service expects, until enough were seen; None for none.
        requests: that were seen.
    """

    components: tuple[PlannedComponent, ...]
    latency_s: float = 0.0
    variants: tuple[Variant, ...] = ()
    expected: ExpectedArrivals | None = None
    requests: int = 0
    graph: LoadedGraph | None = None
    are_replies_in_time: bool = False
    scale: float = 0.0

    @property
    def expected_now(self) -> ExpectedArrivals | None:
        """What is expected, while too few requests were seen to know better."""
        return self.expected if self.requests < EXPECTED_UNTIL else None

    @property
    def part_s(self) -> float:
        """An equal part of the latency target for each stage of the longest path; 0 for none."""
        if self.graph is None:
            return self.latency_s
        same_s = {s.stage.component: 1.0 for s in self.graph.stages.values()}
        return self.latency_s / len(chain_of(self.graph, same_s))


@dataclass(frozen=True, slots=True)
class ServingState:
    """Everything that a plan is made from.

    Attributes:
        services: in order of age.
        fleet: what there is, and what runs on it.
        counts: (service, component) → the last decision about its number of replicas.
        moves: service → its newest move.
        timings: service → what the last plan sent to the hosts of its stages.
        unloaded_s: service → the time of a request alone in the last plan.
    """

    services: Sequence[PlannedService]
    fleet: FleetView
    counts: Mapping[tuple[str, str], ReplicaCount] = field(default_factory=dict)
    moves: Mapping[str, ReplicaMove] = field(default_factory=dict)
    timings: Mapping[str, Mapping[str, StageTiming]] = field(default_factory=dict)
    unloaded_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServePlan:
    """A plan.

    Attributes:
        placement: where replicas are.
        counts: how many there should be; the next plan needs them.
        targets_s: (service, component) → its part of the latency target.
        caps: (service, component, device class) → the largest batch.
        problems: service → why its latency target cannot be kept on any class of device.
        alone_s: (service, component) → the time of a call alone, as far as it is known.
        timings: service → by stage, what a call may take; the next plan needs them. None where
            there is no target, or none that can be kept.
        unloaded_s: service → the time of a request alone, of services with a ``scale``; none before
            it is measured. The next plan needs it.
    """

    placement: ServingPlan
    counts: dict[tuple[str, str], ReplicaCount] = field(default_factory=dict)
    targets_s: dict[tuple[str, str], float] = field(default_factory=dict)
    caps: dict[tuple[str, str, str], int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    alone_s: dict[tuple[str, str], float] = field(default_factory=dict)
    timings: dict[str, Mapping[str, StageTiming]] = field(default_factory=dict)
    unloaded_s: dict[str, float] = field(default_factory=dict)


def plan(seen: ServingState, now_s: float) -> ServePlan:
    """Returns the plan.

    A service whose target cannot be kept keeps its least number of replicas, and is given none
    beyond it: a late reply is better than none, and more replicas make no request faster.
    """
    made = ServePlan(ServingPlan())
    demands = [
        demand for service in seen.services for demand in _demands(service, seen, now_s, made)
    ]
    return replace(made, placement=plan_replicas(demands, seen.fleet, seen.moves, now_s))


def _demands(
    service: PlannedService, seen: ServingState, now_s: float, made: ServePlan
) -> list[ComponentDemand]:
    alone_s = _alone_s(service, seen.fleet, made)
    name = service.components[0].demand.service
    if service.scale:
        service = _scaled(service, alone_s, seen.unloaded_s.get(name, 0.0), made)
    split = _split(service, alone_s)
    if split.problems and service.are_replies_in_time:  # the measured times are wrong
        split = LatencySplit({}, ())
    elif split.problems:
        made.problems[name] = "; ".join(split.problems)
    elif service.graph is not None and service.latency_s:
        made.timings[name] = _timings(service, service.graph, split, made, seen.timings.get(name))
    return [
        _demand(service, load, split, seen=seen, now_s=now_s, made=made)
        for load in service.components
    ]


def _alone_s(service: PlannedService, fleet: FleetView, made: ServePlan) -> dict[str, float]:
    """Returns each component's time alone on the fastest class of device; 0 if it is not known."""
    classes = _classes(fleet)
    stages = service.graph.stages.values() if service.graph is not None else ()
    alone_s = {stage.stage.component: 0.0 for stage in stages}
    alone_s |= {load.demand.component: load.alone_s(classes) for load in service.components}
    for load in service.components:
        if alone_s[load.demand.component]:
            made.alone_s[load.demand.key] = alone_s[load.demand.component]
    return alone_s


def _scaled(
    service: PlannedService, alone_s: Mapping[str, float], before_s: float, made: ServePlan
) -> PlannedService:
    """Returns a service with its target in seconds, which it has once enough is measured."""
    assert service.graph is not None, "a target as a multiple is of a service with stages"
    unloaded_s = before_s
    if before_s or service.requests >= ENOUGH:
        unloaded_s = unloaded_request_s(service.graph, alone_s, before_s)
    if unloaded_s:
        made.unloaded_s[service.components[0].demand.service] = unloaded_s
    return replace(service, latency_s=service.scale * unloaded_s)


def _split(service: PlannedService, alone_s: dict[str, float]) -> LatencySplit:
    """Splits the target by the components' times alone.

    Where a component's time is not known yet, it counts as nothing: the others alone may take too
    long, but there are no parts of the target.
    """
    if not service.latency_s or not any(alone_s.values()):
        return LatencySplit({}, ())
    is_known = all(alone_s.values())
    alone_s = {name: seconds or _NOTHING_S for name, seconds in alone_s.items()}
    variants = service.variants
    if service.graph is not None:
        variants = (Variant(slowest_paths(service.graph, alone_s)),)
    split = split_latency(service.latency_s, variants, alone_s)
    return split if is_known else LatencySplit({}, split.problems)


def _timings(
    service: PlannedService,
    graph: LoadedGraph,
    split: LatencySplit,
    made: ServePlan,
    before: Mapping[str, StageTiming] | None,
) -> Mapping[str, StageTiming]:
    """Returns what calls may take; as before where that is nearly the same.

    Measured times move a little with each batch: not every such change is sent to workers. A
    component whose time is not known counts as nothing.
    """
    alone_s = {s.stage.component: 0.0 for s in graph.stages.values()}
    for load in service.components:
        alone_s[load.demand.component] = made.alone_s.get(load.demand.key, 0.0)
    found = stage_timings(graph, alone_s, split.target_s)
    if before is None or before.keys() != found.keys():
        return found
    return before if all(is_steady(before[n], found[n]) for n in found) else found


def _classes(fleet: FleetView) -> set[str]:
    shapes = [w.shape for w in fleet.workers] + [p.shape for p in fleet.pools]
    return {shape.device_class for shape in shapes}


def _demand(
    service: PlannedService,
    load: PlannedComponent,
    split: LatencySplit,
    *,
    seen: ServingState,
    now_s: float,
    made: ServePlan,
) -> ComponentDemand:
    """Returns a component with its number of replicas and what each of them serves."""
    demand, key = load.demand, load.demand.key
    target_s = split.target_s.get(demand.component, 0.0)
    if target_s:
        made.targets_s[key] = target_s
    too_slow = {} if split.problems else _too_slow(load, target_s)
    capacities = {}
    for device_class, profile in load.profiles.items():
        if device_class not in too_slow:
            cap = made.caps[*key, device_class] = _cap(load, profile, target_s)
            capacities[device_class] = _capacity(profile, cap)
    estimates = {c: _capacity(p, _cap(load, p, target_s)) for c, p in load.estimates.items()}
    added = {replica_id for move in seen.moves.values() for replica_id in move.coming}
    present = _classes_of(demand, seen.fleet, added)
    before = seen.counts.get(key, ReplicaCount(len(present)))
    rate = _rate(service, load)
    one = _mean_capacity(present, capacities)
    count = count_replicas(demand.wanted, load.most, rate, one, before, now_s)
    if one is None and service.expected_now is not None and service.latency_s:
        at_once = requests_at_once(service.expected_now, service.part_s * load.visits)
        count = count_expected(demand.wanted, load.most, at_once, load.memory_cap, before)
    made.counts[key] = count
    least = max(demand.wanted, len(present))
    wanted = min(count.wanted, least) if split.problems else count.wanted
    return replace(
        demand,
        timings=_timings_of(service, demand, made),
        wanted=wanted,
        spare=max(0, wanted - demand.wanted),
        rate_per_s=rate or 0.0,
        capacity_per_s={c: UTILISATION * one.peak for c, one in (estimates | capacities).items()},
        too_slow=too_slow,
    )


def _timings_of(
    service: PlannedService, demand: ComponentDemand, made: ServePlan
) -> dict[str, StageTiming]:
    """Returns what calls of a component may take, by stage, where anything is known of it."""
    timings = made.timings.get(demand.service, {})
    stages = service.graph.stages if service.graph is not None else {}
    return {
        name: timing
        for name, timing in timings.items()
        if stages[name].stage.component == demand.component and timing != UNTIMED
    }


def _too_slow(load: PlannedComponent, target_s: float) -> dict[str, str]:
    """Returns why classes of device cannot keep a component's part of the target."""
    return {
        device_class: f"{load.demand.component} takes {load.alone_s([device_class]) * 1e3:.0f} ms "
        f"alone on {device_class}, its part of the target is {target_s * 1e3:.0f} ms"
        for device_class in load.profiles
        if target_s and load.alone_s([device_class]) > target_s * (1 + 1e-9)
    }


def _cap(load: PlannedComponent, profile: BatchProfile, target_s: float) -> int:
    """Returns the largest batch on a class of device."""
    step_s = target_s / load.steps_per_call if load.steps_per_call else 0.0
    cap = batch_cap(profile, step_s, load.memory_cap) if step_s else load.memory_cap
    tpot_s = TOKEN_MARGIN * load.demand.tpot_s
    return profile.largest_within(tpot_s, cap) if tpot_s else cap


def _capacity(profile: BatchProfile, cap: int) -> ReplicaCapacity:
    knee = min(profile.knee(), cap)
    return ReplicaCapacity(profile.best_rate(cap), knee / profile.at(knee))


def _classes_of(demand: ComponentDemand, fleet: FleetView, added: Collection[str]) -> list[str]:
    """Returns the device classes of the workers that have a replica, of any release.

    Without those that a move has added.
    """
    component = f"{demand.service}/{demand.component}/"
    classes = {w.name: w.shape.device_class for w in fleet.workers}
    return [
        classes.get(name, "")
        for name, replica_ids in fleet.held.items()
        if any(one.startswith(component) and one not in added for one in replica_ids)
    ]


def _rate(service: PlannedService, load: PlannedComponent) -> float | None:
    """Returns the demand in the unit of a component's profiles; None before it is known."""
    arrivals = service.expected_now
    expected = 0.0
    if arrivals is not None:
        expected = planned_per_s(arrivals) * load.visits * load.steps_per_call
    return max(load.rate_per_s or 0.0, expected) if expected else load.rate_per_s


def _mean_capacity(
    present: Iterable[str], capacities: Mapping[str, ReplicaCapacity]
) -> ReplicaCapacity | None:
    """Returns what one replica serves where they are now, or else anywhere; None if unknown."""
    found = [capacities[c] for c in present if c in capacities] or list(capacities.values())
    if not found:
        return None
    return ReplicaCapacity(fmean(f.peak for f in found), fmean(f.knee for f in found))
