"""A latency target that is a multiple of a request alone, against all paths of drawn graphs."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.flowmesh_core.placement.builders import signature
from tests.flowmesh_core.serving.test_replica_placement import demand, host

from flowmesh_core.serving.plan.component_demand import FleetView
from flowmesh_core.serving.plan.serving_plan import (
    PlannedComponent,
    PlannedService,
    ServePlan,
    ServingState,
    plan,
)
from flowmesh_core.serving.plan.slo_verdict import ENOUGH
from flowmesh_core.serving.plan.unloaded_request import unloaded_request_s
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage

CLASS = host("w").shape.device_class
SERVICE = "t/a"
CHAIN = LoadedGraph(
    ServiceGraph(
        (Stage("read", "first", ""), Stage("rank", "second", "", {"text": "read"})),
        {"text": "rank"},
    )
)


def drawn(dice: random.Random) -> tuple[ServiceGraph, dict[str, float]]:
    """Returns stages, each of which reads some of the earlier ones, and times of components."""
    count = dice.randrange(1, 8)
    components = [f"c{n}" for n in range(dice.randrange(1, count + 1))]
    stages = []
    for n in range(count):
        read = dice.sample(range(n), dice.randrange(min(n, 3) + 1))
        inputs = {f"i{m}": f"s{m}" for m in read} or {"i": "request.x"}
        stages.append(Stage(f"s{n}", dice.choice(components), "", inputs))
    used = {text for s in stages for text in s.inputs.values()}
    reply = {s.name: s.name for s in stages if s.name not in used}
    alone_s = {name: dice.uniform(0.001, 1.0) for name in components}
    return ServiceGraph(tuple(stages), reply), alone_s


def paths(graph: ServiceGraph, stage: str) -> Iterator[list[str]]:
    """Yields the components of every path that ends with a stage."""
    found = next(s for s in graph.stages if s.name == stage)
    read = [text for text in found.inputs.values() if not text.startswith("request")]
    for before in [p for name in read for p in paths(graph, name)] or [[]]:
        yield [*before, found.component]


def test_a_request_alone_takes_the_slowest_of_all_paths() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    dice = random.Random(seed)
    for _ in range(200):
        graph, alone_s = drawn(dice)
        slowest = max(
            sum(alone_s[c] for c in path) for name in graph.reply for path in paths(graph, name)
        )
        found = unloaded_request_s(LoadedGraph(graph), alone_s)
        assert found == pytest.approx(slowest, rel=0.006)


def test_a_measured_time_counts_from_a_tenth_on_and_stays_while_it_is_not_known() -> None:
    first = unloaded_request_s(CHAIN, {"first": 0.02, "second": 0.08})
    assert first == pytest.approx(0.1)
    assert unloaded_request_s(CHAIN, {"first": 0.02, "second": 0.085}, first) == first
    assert unloaded_request_s(CHAIN, {"first": 0.02, "second": 0.0}, first) == first
    assert unloaded_request_s(CHAIN, {"first": 0.02, "second": 0.1}, first) == pytest.approx(0.12)
    assert unloaded_request_s(CHAIN, {"first": 0.02, "second": 0.0}) == 0.0


def service(requests: int, *seconds: float, scale: float = 3.0) -> PlannedService:
    """A service of two stages whose components take these times alone; 0 is not measured."""
    components = tuple(
        PlannedComponent(
            replace(demand("a", 1), component=name, info=signature(name)),
            1,
            profiles={CLASS: BatchProfile.of({1: s})} if s else {},
        )
        for name, s in zip(("first", "second"), seconds, strict=True)
    )
    return PlannedService(components, graph=CHAIN, requests=requests, scale=scale)


def made(one: PlannedService, before: ServePlan | None = None) -> ServePlan:
    known = {} if before is None else before.unloaded_s
    return plan(ServingState([one], FleetView([host("w")]), unloaded_s=known), 0.0)


def test_there_is_no_target_before_enough_replies_of_measured_components() -> None:
    for one in (service(ENOUGH - 1, 0.1, 0.3), service(ENOUGH, 0.1, 0.0)):
        found = made(one)
        assert (found.unloaded_s, found.targets_s, found.timings) == ({}, {}, {})


def test_each_stage_gets_its_time_alone_times_the_scale() -> None:
    """NeuStream's setting: without hand-offs a component's part is the scale times its time."""
    found = made(service(ENOUGH, 0.1, 0.3))
    assert found.unloaded_s == {SERVICE: pytest.approx(0.4)}
    assert found.targets_s == {
        (SERVICE, "first"): pytest.approx(0.3),
        (SERVICE, "second"): pytest.approx(0.9),
    }
    assert found.problems == {}
    later = made(service(ENOUGH, 0.1, 0.0), found)
    assert later.unloaded_s == found.unloaded_s, "an idle engine keeps the target"
    assert made(service(ENOUGH, 0.1, 0.3, scale=0.0), found).unloaded_s == {}
