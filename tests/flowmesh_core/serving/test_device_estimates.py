"""What an engine takes on a device where it never ran: enough for a move, not for a target."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.serving.serving_world import ServingWorld, device, service
from tests.flowmesh_core.serving.test_replica_moves import LOADED, MINUTE

from flowmesh_core.costmodel.devices import rates_of
from flowmesh_core.costmodel.prior import token_step_s
from flowmesh_core.serving.plan.component_demand import FleetView
from flowmesh_core.serving.plan.device_estimates import estimated_profiles
from flowmesh_core.serving.plan.latency_split import Path, Variant
from flowmesh_core.serving.plan.serving_plan import PlannedService, ServingState, plan
from flowmesh_core.serving.profile import BatchProfile

CPU, L4 = "cpu", "nvidia-l4"
BYTES = 538_000_000
PROFILE = BatchProfile.of({1: 0.1, 8: 0.2})


def test_an_estimate_is_the_measured_time_by_the_ratio_of_the_rooflines() -> None:
    found = estimated_profiles({CPU: PROFILE}, [CPU, L4], BYTES)
    assert set(found) == {L4}, "what was measured is not estimated"
    cpu, l4 = (token_step_s(rates_of(c), BYTES) for c in (CPU, L4))
    for calls in (1, 8):
        ratio = (l4[0] + calls * l4[1]) / (cpu[0] + calls * cpu[1])
        assert found[L4].at(calls) == pytest.approx(PROFILE.at(calls) * ratio)
        assert found[L4].at(calls) < PROFILE.at(calls)
    assert estimated_profiles({}, [CPU, L4], BYTES) == {}


def test_a_replica_moves_to_a_device_that_should_be_faster_and_back_where_it_is_not() -> None:
    on_cpu = service("a", 100.0, {CPU: 50.0})
    estimated = replace(on_cpu, estimates={L4: BatchProfile.of({1: 1 / 500})})
    world = ServingWorld.of([device("w0", CPU), device("w1", L4, price=9)], estimated)
    world.run(LOADED + 2 * MINUTE)
    assert world.places() == {"w1": ["a"]}
    world.services = [service("a", 100.0, {CPU: 50.0, L4: 40.0})]
    assert world.run(3 * MINUTE).places() == {"w0": ["a"]}
    assert world.run(10 * MINUTE).places() == {"w0": ["a"]}
    assert len(world.begun_s["t/a"]) == 2


def test_no_target_is_judged_by_an_estimate() -> None:
    one = replace(service("a", 1.0, {CPU: 10.0}), estimates={L4: BatchProfile.of({1: 9.0})})
    variants = (Variant((Path({"llm": 1}),)),)
    fleet = FleetView([device("w0", CPU), device("w1", L4)])
    made = plan(ServingState([PlannedService((one,), 0.2, variants)], fleet), 0.0)
    assert made.problems == {}
    assert {key[2] for key in made.caps} == {CPU}
    hopeless = plan(ServingState([PlannedService((one,), 0.05, variants)], fleet), 0.0)
    assert "takes at least 100 ms" in hopeless.problems["t/a"]
