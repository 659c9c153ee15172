"""Expected requests size the first plans, until a hundred replies say more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_core.serving.test_serving_plan import L40S, component, placed, workers

from flowmesh_core.serving.plan.capacity import UTILISATION
from flowmesh_core.serving.plan.component_demand import FleetView
from flowmesh_core.serving.plan.planned_rate import planned_per_s
from flowmesh_core.serving.plan.replica_count import ReplicaCount
from flowmesh_core.serving.plan.serving_plan import PlannedService, ServingState, plan
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage

FLEET = FleetView(workers(8))


@pytest.mark.parametrize(
    ("arrivals", "planned"),
    [
        (ExpectedArrivals(10.0), 10.0),
        (ExpectedArrivals(10.0, cv=0.0), 8.0),  # 75 % of the throughput in place of 60
        (ExpectedArrivals(10.0, cv=2.0), 16.0),  # 37.5 %
        (ExpectedArrivals(10.0, peak_per_s=15.0), 10.0),  # replicas may be always busy then
        (ExpectedArrivals(10.0, peak_per_s=40.0), 24.0),
        (ExpectedArrivals(0.5, cv=2.0, peak_per_s=2.0), 1.2),
    ],
)
def test_uneven_requests_and_peaks_are_planned_as_a_higher_rate(
    arrivals: ExpectedArrivals, planned: float
) -> None:
    assert planned_per_s(arrivals) == pytest.approx(planned)


@given(st.floats(0.001, 1e5), st.floats(0, 50), st.floats(0, 50))
def test_more_uneven_requests_never_need_less(rate: float, cv: float, more: float) -> None:
    even, uneven = ExpectedArrivals(rate, cv), ExpectedArrivals(rate, cv + more)
    assert planned_per_s(even) <= planned_per_s(uneven) * (1 + 1e-9)
    assert planned_per_s(even) >= UTILISATION * rate


def wanted(
    arrivals: ExpectedArrivals | None,
    *,
    latency_s: float = 2.0,
    requests: int = 0,
    most: int = 8,
    stages: int = 1,
    **known: Any,
) -> tuple[int, str]:
    """Returns how many replicas of the only measured or unmeasured component there are, and why."""
    names = [f"s{n}" for n in range(stages)]
    chain = tuple(
        Stage(name, "llm", "", {"in": before})
        for name, before in zip(names, ["request", *names], strict=False)
    )
    graph = LoadedGraph(ServiceGraph(chain, {"text": names[-1]}))
    one = component(
        most=most,
        **({"profiles": {}, "rate_per_s": None, "memory_cap": 4, "visits": 1.0 * stages} | known),
    )
    service = PlannedService((one,), latency_s, expected=arrivals, requests=requests, graph=graph)
    made = plan(ServingState([service], FLEET), 0.0)
    count = made.counts["t/a", "llm"]
    assert placed(made.placement) == count.wanted
    return count.wanted, count.text


def test_before_a_measurement_all_calls_that_may_be_under_way_run_at_once() -> None:
    """Ten a second that take two seconds each are twenty at once."""
    assert wanted(ExpectedArrivals(10.0)) == (
        5,
        "20 calls at once are expected, and one replica runs 4",
    )
    assert wanted(ExpectedArrivals(10.0), most=3)[0] == 3
    assert wanted(ExpectedArrivals(1.0, peak_per_s=10.0))[0] == 5
    assert wanted(ExpectedArrivals(0.001))[0] == 1


def test_the_stages_of_a_request_share_its_time() -> None:
    """A component that a request visits in each of its stages has all of the target."""
    assert wanted(ExpectedArrivals(10.0), stages=4) == wanted(ExpectedArrivals(10.0))


def test_without_a_target_or_expected_requests_nothing_is_known_before_a_measurement() -> None:
    unknown = (1, "its demand is not measured yet")
    assert wanted(ExpectedArrivals(10.0), latency_s=0.0) == unknown
    assert wanted(None) == unknown
    assert wanted(ExpectedArrivals(10.0), requests=100) == unknown


def test_once_a_replica_is_measured_the_expected_rate_is_served_at_its_capacity() -> None:
    """One that takes 0.1 s serves ten a second, of which six are planned."""
    measured = {"profiles": {L40S: BatchProfile.of({1: 0.1})}, "memory_cap": 1, "rate_per_s": 0.5}
    assert wanted(ExpectedArrivals(18.0), **measured)[0] == 3
    assert wanted(ExpectedArrivals(18.0, cv=2.0), **measured)[0] == 5
    assert wanted(ExpectedArrivals(18.0), requests=100, **measured)[0] == 1
    # An engine is measured in tokens: a call that takes 30 of them is asked for 18 times a second.
    tokens = {"profiles": {L40S: BatchProfile.of({1: 0.005})}, "steps_per_call": 30.0}
    assert wanted(ExpectedArrivals(18.0), rate_per_s=9.0, memory_cap=1, **tokens)[0] == 5


def test_there_are_not_fewer_replicas_before_a_measurement() -> None:
    service = PlannedService(
        (component(profiles={}, rate_per_s=None),), 1.0, expected=ExpectedArrivals(1.0)
    )
    before = {("t/a", "llm"): ReplicaCount(3)}
    made = plan(ServingState([service], FLEET, before), 0.0)
    assert made.counts["t/a", "llm"].wanted == 3
