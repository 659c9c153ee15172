"""What routers report of components that form batches: replicas, parts of targets, the curve."""

import msgspec
import pytest
from tests.flowmesh_core.machine.world import World
from tests.flowmesh_core.placement.builders import signature

from flowmesh_control.records.service_records import (
    PendingRelease,
    ServiceRecord,
    ServiceRelease,
)
from flowmesh_control.serving.capacity_curves import CapacityCurves
from flowmesh_control.serving.fleet import fleet_view
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_content import with_models
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_control.serving.service_slo import ServiceTargets, condition_of
from flowmesh_core.graph.plan import Plan
from flowmesh_core.graph.python_components import CODE_COMPONENT
from flowmesh_core.graph.service_plan import ServicePlan
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica, ServingReplicaState
from flowmesh_core.protocol.router_reports import ReplicaProfile, RouterReport, ServiceReport
from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage

SERVICE = "team-a/ask"
INFO = signature("code", memory_mib=100, engine="test.noop", capacity=1)
OPENING = PrewarmSpec(INFO.signature, CODE_COMPONENT, 1, 1, memory_mib=100)
SEARCH = msgspec.structs.replace(OPENING, engine="retrieve.topk")
STAGES = (Stage("read", "first", ""), Stage("rank", "second", "", {"text": "read"}))
GRAPH = LoadedGraph(ServiceGraph(STAGES, {"text": "rank"}))
DEMANDS = [
    ComponentDemand(SERVICE, name, "r1", INFO, OPENING, wanted=1) for name in ("first", "second")
]
RECORD = ServiceRecord("team-a", "ask", {}, "ask", 0.0)


class Scene:
    """A service of two stages whose components share a host on one of three workers."""

    def __init__(self, latency_s: float = 0.0, opening: PrewarmSpec = OPENING) -> None:
        self.world = World()
        self.world.join("w0", "w1", "w2", replicas=())
        self.given = [
            ServingReplica(f"{SERVICE}/{d.component}/r1/0", SERVICE, d.component, "r1", opening)
            for d in DEMANDS
        ]
        self.world.apply(ServingPlanChanged({"w0": tuple(self.given)}))
        states = [ServingReplicaState(r.replica_id, "ready") for r in self.given]
        load = {"signature": INFO.signature, "memory_mib": 100}
        self.world.serves("w0", *(msgspec.structs.replace(s, **load) for s in states))
        placed = {SERVICE: {r.replica_id: "w0" for r in self.given}}
        self.loads = ServiceLoads(lambda: placed, lambda: self.world.now)
        self.scaler = ReplicaScaler(self.world.machine.state, self.loads)
        self.target = ServiceTarget(latency_s, GRAPH)
        self.curves = CapacityCurves(self.world.machine.state, self.scaler, self.loads)

    def report(self, replies: int, *seconds: float, iterating: tuple[str, ...] = ()) -> None:
        """A young router reports replies, and what its hubs measured of the components."""
        replicas = tuple(
            ReplicaProfile(
                given.replica_id,
                (1,),
                (s,),
                1,
                (0.5, 1.5) if given.component in iterating else (),
            )
            for given, s in zip(self.given, seconds, strict=False)
        )
        missed = replies if 0 < self.target.latency_s < sum(seconds) else 0
        total = ServiceReport(
            SERVICE, replies, replies, missed, latency=(replies,), replicas=replicas
        )
        assert self.loads.observe(RouterReport("r1", 60.0, (total,))) == 0

    def plan(self) -> dict[str, int]:
        """Plans, and returns how many replicas of each component are wanted."""
        world, most = self.world, {d.key: 3 for d in DEMANDS}
        fleet = fleet_view(world.machine.state, (), world.now)
        self.scaler.plan(DEMANDS, most, {SERVICE: self.target}, fleet, world.now)
        return {name: c.wanted for (_, name), c in self.scaler.made.counts.items()}


def test_replicas_of_a_slow_component_follow_the_reported_requests() -> None:
    scene = Scene()
    assert scene.plan() == {"first": 1, "second": 1}
    scene.report(50, 0.01, 0.1)  # in the first five seconds: ten a second
    assert scene.plan() == {"first": 1, "second": 2}


def test_a_target_that_the_stages_cannot_keep_names_the_stage_and_adds_no_replica() -> None:
    scene = Scene(latency_s=0.1)
    scene.report(50, 0.01, 0.3)
    assert scene.plan() == {"first": 1, "second": 3}, "by the requests alone"
    assert "stage rank (component second) alone takes 300 ms" in scene.scaler.made.problems[SERVICE]
    assert len(scene.scaler.made.placement.workers["w0"]) == 2
    assert sum(map(len, scene.scaler.made.placement.workers.values())) == 2


def test_measured_times_that_most_replies_contradict_take_no_replica() -> None:
    scene = Scene(latency_s=0.1)
    scene.report(50, 0.01, 0.3)
    late = ServiceReport(SERVICE, 1050, 1050, 50, latency=(1050,))
    scene.loads.observe(RouterReport("r1", 60.0, (late,)))
    scene.plan()
    assert scene.scaler.made.problems == {}
    assert scene.scaler.made.targets_s == {}, "no part of the target follows from wrong times"
    assert scene.scaler.made.timings == {}, "nor what calls may take"
    assert sum(map(len, scene.scaler.made.placement.workers.values())) > 2, "they follow demand"


def test_a_stage_that_is_not_measured_yet_counts_as_nothing() -> None:
    scene = Scene(latency_s=0.1)
    scene.report(50, 0.3)
    scene.plan()
    assert "stage read (component first) alone takes 300 ms" in scene.scaler.made.problems[SERVICE]
    assert scene.scaler.made.targets_s == {}
    fast = Scene(latency_s=0.1)
    fast.report(50, 0.09)
    fast.plan()
    assert fast.scaler.made.problems == {}


async def test_a_target_as_a_multiple_follows_what_is_measured() -> None:
    scene = Scene()
    scene.target = ServiceTarget(0.0, GRAPH, scale=3.0)
    entry = ServiceEntry(SERVICE, "ask", graph=GRAPH.graph, slo_scale=3.0)
    record = msgspec.structs.replace(RECORD, release=ServiceRelease("r1", (), (), entry=entry))
    for replies, second_s, target_s in (
        (19, 0.3, 0.0),
        (20, 0.3, 1.2),
        (40, 0.31, 1.2),  # less than a tenth more
        (60, 0.5, 1.8),
    ):
        scene.report(replies, 0.1, second_s)
        scene.plan()
        assert scene.scaler.latency_s(SERVICE, scene.target) == pytest.approx(target_s)
        found = await scene.curves.of(record, scene.target)
        assert (found.requests.latency_s, found.requests.scale) == (pytest.approx(target_s), 3.0)
        made, seen = scene.scaler.made, scene.loads.seen(SERVICE)
        condition = condition_of(record, GRAPH, found.requests, made, seen)
        if target_s:
            assert condition.message.endswith(f"{target_s * 1e3:.0f} ms, 3 times a request alone")
            assert found.points[0].miss_rate < 0.5, "the curve counts by the target"
        else:
            assert (condition.status, condition.reason) == ("Unknown", "NotMeasured")
            assert condition.message.endswith("3 times a request alone, and it needs 20 replies")


def timing_of(replica: ServingReplica, stage: str) -> tuple[float, ...]:
    """What a replica's only stage has."""
    assert replica.timings.keys() == {stage}
    return msgspec.structs.astuple(replica.timings[stage])


def test_replicas_take_the_split_and_the_time_of_later_stages_to_their_workers() -> None:
    scene = Scene(latency_s=0.2)
    scene.plan()
    assert not any(r.timings for r in scene.scaler.made.placement.workers["w0"])
    scene.report(50, 0.01, 0.03)
    scene.plan()
    read, rank = scene.scaler.made.placement.workers["w0"]
    assert timing_of(read, "read") == pytest.approx((0.05, 1, 0.03))
    assert timing_of(rank, "rank") == pytest.approx((0.15, 1, 0.0))


def test_workers_are_told_of_other_timings_only_where_they_change_by_a_tenth() -> None:
    scene = Scene(latency_s=0.2)
    scene.report(50, 0.01, 0.03)
    scene.plan()
    before = scene.scaler.made.placement.workers
    scene.report(51, 0.0101, 0.0301)
    scene.plan()
    assert scene.scaler.made.placement.workers == before
    scene.report(52, 0.01, 0.04)
    scene.plan()
    read, _ = scene.scaler.made.placement.workers["w0"]
    assert timing_of(read, "read") == pytest.approx((0.04, 1, 0.04))


def test_a_service_without_a_target_or_with_one_that_cannot_be_kept_has_no_timings() -> None:
    for latency_s in (0.0, 0.03):
        scene = Scene(latency_s)
        scene.report(50, 0.01, 0.03)
        scene.plan()
        assert not any(r.timings for r in scene.scaler.made.placement.workers["w0"])


async def test_the_curve_says_what_is_missing_until_enough_is_measured() -> None:
    scene = Scene(latency_s=1.0)
    assert (await scene.curves.of(RECORD, None)).reason == "it has no release yet"
    scene.report(19, 0.01, 0.1)
    scene.plan()
    assert "19 replies were measured" in (await scene.curves.of(RECORD, scene.target)).reason
    scene.report(20, 0.01)
    other = Scene(latency_s=1.0)
    other.report(20, 0.01)
    other.plan()
    reason = (await other.curves.of(RECORD, other.target)).reason
    assert reason == "no replica of stage rank is ready and measured yet"


async def test_the_curve_is_of_the_shared_host_and_is_kept() -> None:
    scene = Scene(latency_s=1.0)
    scene.report(20, 0.05, 0.15)
    scene.plan()
    first = await scene.curves.of(RECORD, scene.target)
    assert first.best_per_s == pytest.approx(5.0), "one host runs both: 200 ms a request"
    assert [p.rate_per_s for p in first.points] == [1.0, 2.0, 3.0, 4.0, 4.8]
    assert all(p.p50_s >= 0.2 for p in first.points)
    assert first.points[0].miss_rate < 0.1 < first.points[-1].miss_rate
    scene.report(21, 0.0501, 0.15)
    scene.plan()
    again = await scene.curves.of(RECORD, scene.target)
    assert again.points is first.points, "the same to two digits"
    scene.report(22, 0.05, 0.35)
    scene.plan()
    slower = await scene.curves.of(RECORD, scene.target)
    assert slower.best_per_s == pytest.approx(2.5)


def test_the_most_requests_are_known_without_a_simulation_once_all_stages_are_measured() -> None:
    scene = Scene(latency_s=1.0)
    for replies, seconds, expected in (
        (19, (0.05, 0.15), 0.0),  # too few
        (20, (0.05, 0.1501), 5.0),
        (21, (0.05, 0.35), 2.5),
    ):
        scene.report(replies, *seconds)
        scene.plan()
        assert scene.curves.best_per_s(SERVICE, scene.target) == expected
    assert not scene.curves._made
    partly = Scene()
    partly.report(20, 0.05)
    partly.plan()
    assert partly.curves.best_per_s(SERVICE, partly.target) == 0.0


async def test_the_curve_takes_calls_of_an_engine_to_run_side_by_side() -> None:
    scene = Scene(latency_s=1.0, opening=SEARCH)
    scene.report(20, 0.05, 0.15)
    scene.plan()
    found = await scene.curves.of(RECORD, scene.target)
    assert [s.replicas for s in found.stages] == [1, 1]
    assert found.best_per_s == pytest.approx(1 / 0.15, rel=1e-3), "the stages share no host"


async def test_the_curve_takes_calls_of_a_component_that_iterates_to_run_side_by_side() -> None:
    scene = Scene(latency_s=1.0)
    own = msgspec.structs.replace(OPENING, signature="own")
    scene.given[1] = msgspec.structs.replace(scene.given[1], opening=own)
    scene.world.apply(ServingPlanChanged({"w0": tuple(scene.given)}))
    scene.report(20, 0.05, 0.15, iterating=("second",))
    scene.plan()
    stages = scene.curves._stages(SERVICE, [("read", "first"), ("rank", "second")])
    assert [r.is_continuous for stage in stages for r in stage.replicas] == [False, True]
    assert [r.call_lengths for stage in stages for r in stage.replicas] == [(), (0.5, 1.5)]
    found = await scene.curves.of(RECORD, scene.target)
    assert found.best_per_s == pytest.approx(1 / 0.15, rel=1e-3)


async def test_no_curve_is_made_of_steps_between_the_batches_of_others() -> None:
    scene = Scene(latency_s=1.0)
    scene.report(20, 0.05, 0.15, iterating=("second",))
    scene.plan()
    found = await scene.curves.of(RECORD, scene.target)
    assert found.points == ()
    assert found.reason == (
        "stages rank and read share a process, and component second iterates, which is not"
        " predicted: `ownHost: true` gives a component a process of its own"
    )


async def test_nothing_is_kept_of_a_deleted_service() -> None:
    scene = Scene(latency_s=1.0)
    scene.report(20, 0.05, 0.15)
    scene.plan()
    await scene.curves.of(RECORD, scene.target)
    for kept in (scene.loads, scene.curves):
        kept.keep(())
    assert not scene.loads._seen
    assert not scene.curves._made
    assert scene.loads.seen(SERVICE).ended == 0


def test_expected_requests_decide_the_number_of_replicas_until_a_hundred_were_answered() -> None:
    """Of two stages each has half of the target, one second."""
    scene = Scene(latency_s=1.0)
    scene.target = ServiceTarget(1.0, GRAPH, ExpectedArrivals(4.0))
    assert scene.plan() == {"first": 2, "second": 2}, "two calls at once, nothing is measured"
    scene.report(20, 0.01, 0.4)
    assert scene.plan() == {"first": 2, "second": 3}, "four a second, of which one serves 1.5"
    scene.target = ServiceTarget(1.0, GRAPH, ExpectedArrivals(1000.0))
    scene.report(100, 0.01, 0.4)
    scene.plan()
    assert scene.scaler.made.counts[SERVICE, "first"].text.startswith("20/s asked")


def test_a_release_has_the_expected_requests_of_its_document() -> None:
    plan = ServicePlan(Plan("", "", (), {}), (), "ask", arrivals=ExpectedArrivals(4.0))
    pending = PendingRelease(plan, "", ScopePlan("ns-a", ("ns-a",), "ns-a"), {})
    record = with_models(msgspec.structs.replace(RECORD, pending=pending), pending, {})
    assert ServiceTargets().of(record).arrivals == ExpectedArrivals(4.0)
