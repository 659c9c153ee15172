"""A replica moves for a floor, for memory, for its target, or for a tenth more; else it stays."""

import random
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.placement.builders import signature
from tests.flowmesh_core.serving.serving_world import (
    LOAD_S,
    STEP_S,
    ServingWorld,
    device,
    service,
)
from tests.flowmesh_core.serving.test_affinity import GROUP
from tests.flowmesh_core.serving.test_affinity import demand as grouped_demand
from tests.flowmesh_core.serving.test_replica_placement import demand, ids

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.serving.plan.component_demand import FleetView
from flowmesh_core.serving.plan.replica_moves import MOVE_EVERY_S, ReplicaMove
from flowmesh_core.serving.plan.replica_placement import plan_replicas
from flowmesh_core.serving.plan.replica_reason import ReplicaVerdict
from flowmesh_core.serving.plan.serving_plan import PlannedComponent
from flowmesh_core.serving.profile import BatchProfile

SLOW, FAST = "slow", "fast"
MINUTE = round(MOVE_EVERY_S / STEP_S)
LOADED = round(LOAD_S / STEP_S) + 1


def two_devices(rate_per_s: float, slow: float, fast: float) -> ServingWorld:
    """A service on the cheap device of two; the other one was measured before."""
    one = service("a", rate_per_s, {SLOW: slow, FAST: fast})
    world = ServingWorld.of([device("cheap", SLOW), device("dear", FAST, price=9)], one)
    return world.run(LOADED)


# -- for a gain ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate_per_s", "slow", "fast", "moves"),
    [
        (100.0, 50.0, 60.0, True),
        (100.0, 50.0, 55.0, True),
        (100.0, 50.0, 54.0, False),  # gains 8 %
        (100.0, 50.0, 40.0, False),
        (29.0, 50.0, 500.0, False),  # 50 a second are planned as 30: enough where it is
        (32.0, 50.0, 500.0, False),  # of a tenth more only 7 % would be used
        (0.0, 50.0, 500.0, False),
    ],
)
def test_a_move_gains_a_tenth_of_what_the_service_serves_of_its_demand(
    rate_per_s: float, slow: float, fast: float, moves: bool
) -> None:
    world = two_devices(rate_per_s, slow, fast).run(4 * MINUTE)
    assert world.places() == {"dear" if moves else "cheap": ["a"]}
    assert len(world.begun_s.get("t/a", [])) == moves


def test_a_class_of_device_that_was_never_measured_is_no_reason_to_move() -> None:
    world = two_devices(100.0, 50.0, 500.0)
    world.services = [service("a", 100.0, {SLOW: 50.0})]
    assert world.run(4 * MINUTE).places() == {"cheap": ["a"]}
    world.services = [service("a", 100.0, {FAST: 50.0})]
    assert world.run(4 * MINUTE).places() == {"cheap": ["a"]}


def test_the_new_replica_is_loaded_beside_the_old_one_which_leaves_when_it_is_ready() -> None:
    world = two_devices(100.0, 50.0, 100.0)
    while not world.made.placement.moves["t/a"].coming:
        world.step()
    assert ids(world.made.placement) == {"cheap": ["t/a/llm/r1/0"], "dear": ["t/a/llm/r1/1"]}
    reasons = {r.worker: r for r in world.made.placement.placements}
    assert reasons["dear"].verdict is ReplicaVerdict.MOVED
    assert reasons["dear"].text == (
        "it serves 60% of the demand there, 30% here; is the cheapest of 1 that can load it; in"
        " place of t/a/llm/r1/0 of cheap"
    )
    assert reasons["cheap"].verdict is ReplicaVerdict.STAYS
    assert reasons["cheap"].text == "it runs there until t/a/llm/r1/1 of dear is ready"
    began_s = world.now_s - STEP_S
    while world.made.placement.moves["t/a"].coming:
        assert world.places()["cheap"] == ["a"]
        world.step()
    assert world.now_s - STEP_S >= began_s + LOAD_S
    assert ids(world.made.placement) == {"dear": ["t/a/llm/r1/1"]}


def test_a_service_moves_one_replica_a_minute() -> None:
    one = service("a", 1000.0, {SLOW: 10.0, FAST: 100.0}, least=3, most=3)
    slow = [device(f"s{n}", SLOW) for n in range(3)]
    world = ServingWorld.of(slow, one).run(LOADED)
    for n in range(3):
        world.workers[f"f{n}"] = device(f"f{n}", FAST, price=9)
    world.run(5 * MINUTE)
    assert set(world.places()) == {"f0", "f1", "f2"}
    begun = world.begun_s["t/a"]
    assert len(begun) == 3
    assert begun[0] >= MOVE_EVERY_S, "nor in the first minute of a service, or of a leader"


def test_only_the_component_that_serves_the_least_moves() -> None:
    """A service of two components: the other one has twice what it needs."""
    short, enough = (
        replace(
            demand(name, info=signature(name, memory_mib=3000)),
            service="t/a",
            component=name,
            rate_per_s=100.0,
            capacity_per_s={SLOW: slow, FAST: 300.0},
        )
        for name, slow in (("short", 30.0), ("enough", 200.0))
    )
    fleet = FleetView(
        [device("w0", SLOW), device("w1", SLOW), device("w2", FAST, 9)],
        held={"w0": ["t/a/short/r1/0"], "w1": ["t/a/enough/r1/0"]},
        ready={"t/a/short/r1/0", "t/a/enough/r1/0"},
    )
    full = [replace(w, free_memory_mib=500) if w.name != "w2" else w for w in fleet.workers]
    moves = {"t/a": ReplicaMove(0.0)}
    made = plan_replicas([enough, short], replace(fleet, workers=full), moves, MOVE_EVERY_S)
    assert ids(made)["w2"] == ["t/a/short/r1/1"]


def test_a_replica_that_is_not_ready_does_not_move() -> None:
    one = replace(demand("a"), rate_per_s=100.0, capacity_per_s={SLOW: 30.0, FAST: 300.0})
    slow = replace(device("w0", SLOW), free_memory_mib=500)
    fleet = FleetView([slow, device("w1", FAST)], held={"w0": ["t/a/llm/r1/0"]})
    moves = {"t/a": ReplicaMove(0.0)}
    assert ids(plan_replicas([one], fleet, moves, 99.0)) == {"w0": ["t/a/llm/r1/0"]}
    ready = replace(fleet, ready={"t/a/llm/r1/0"})
    assert set(ids(plan_replicas([one], ready, moves, 99.0))) == {"w0", "w1"}
    assert set(ids(plan_replicas([one], ready, {}, 99.0))) == {"w0"}, "a leader's first plan"


def test_components_of_one_group_move_together() -> None:
    demands = [
        replace(grouped_demand(c), rate_per_s=100.0, capacity_per_s={SLOW: 30.0, FAST: 300.0})
        for c in GROUP
    ]
    there = [f"t/ask/{c}/r1/0" for c in GROUP]
    pinned = {"w0": {d.info.signature for d in demands}}
    slow = replace(device("w0", SLOW, memory_mib=3000), free_memory_mib=0)
    fleet = FleetView(
        [slow, device("w1", FAST, memory_mib=2999)], held={"w0": there}, ready=there, pinned=pinned
    )
    moves = {"t/ask": ReplicaMove(0.0)}
    assert ids(plan_replicas(demands, fleet, moves, 99.0)) == {"w0": there}
    room = replace(fleet, workers=[slow, device("w1", FAST, memory_mib=3000)])
    made = plan_replicas(demands, room, moves, 99.0)
    assert ids(made) == {"w0": there, "w1": [f"t/ask/{c}/r1/1" for c in GROUP]}
    arrived = replace(
        room,
        held=ids(made),
        ready={*there, *made.moves["t/ask"].coming[:2]},
        pinned=dict.fromkeys(("w0", "w1"), pinned["w0"]),
        workers=[replace(w, free_memory_mib=0) for w in room.workers],
    )
    assert ids(plan_replicas(demands, arrived, made.moves, 109.0)) == ids(made), "one still loads"
    arrived = replace(arrived, ready={*there, *made.moves["t/ask"].coming})
    assert set(ids(plan_replicas(demands, arrived, made.moves, 109.0))) == {"w1"}


# -- moves that fail -------------------------------------------------------------------------------


def test_a_worker_that_cannot_load_it_ends_the_move_and_is_asked_ever_more_seldom() -> None:
    world = two_devices(100.0, 50.0, 100.0)
    world.broken = {"dear"}
    world.run(60 * MINUTE)
    assert world.ready_counts() == {"a": 1}
    assert world.places()["cheap"] == ["a"]
    begun = world.begun_s["t/a"]
    waits = [round((b - a) / MOVE_EVERY_S) for a, b in pairwise(begun)]
    assert waits == [2, 4, 8, 16]


def test_when_the_old_worker_leaves_during_a_move_the_new_replica_is_the_one_that_is_wanted() -> (
    None
):
    one = replace(demand("a"), rate_per_s=100.0, capacity_per_s={SLOW: 30.0, FAST: 300.0})
    fleet = FleetView(
        [device("w0", SLOW), device("w1", FAST), device("w2", SLOW)],
        held={"w0": ["t/a/llm/r1/0"], "w1": ["t/a/llm/r1/1"]},
        ready={"t/a/llm/r1/0"},
        leaving={"w0"},
    )
    moves = {"t/a": ReplicaMove(90.0, ("t/a/llm/r1/0",), ("t/a/llm/r1/1",), "why")}
    made = plan_replicas([one], fleet, moves, 99.0)
    assert ids(made) == {"w1": ["t/a/llm/r1/1"]}
    assert made.moves["t/a"] == ReplicaMove(90.0)


def test_when_the_new_worker_is_lost_during_a_move_the_old_replica_stays() -> None:
    one = replace(demand("a"), rate_per_s=100.0, capacity_per_s={SLOW: 30.0, FAST: 300.0})
    fleet = FleetView([device("w0", SLOW)], held={"w0": ["t/a/llm/r1/0"]}, ready={"t/a/llm/r1/0"})
    moves = {"t/a": ReplicaMove(90.0, ("t/a/llm/r1/0",), ("t/a/llm/r1/1",), "why")}
    made = plan_replicas([one], fleet, moves, 99.0)
    assert ids(made) == {"w0": ["t/a/llm/r1/0"]}
    assert made.moves["t/a"] == ReplicaMove(90.0, failures=1)


def test_another_release_ends_the_move() -> None:
    one = demand("a", release="r2")
    fleet = FleetView(
        [device("w0", SLOW), device("w1", FAST)],
        held={"w0": ["t/a/llm/r1/0"], "w1": ["t/a/llm/r1/1"]},
        ready={"t/a/llm/r1/0"},
    )
    moves = {"t/a": ReplicaMove(90.0, ("t/a/llm/r1/0",), ("t/a/llm/r1/1",), "why")}
    made = plan_replicas([one], fleet, moves, 99.0)
    assert [r for found in ids(made).values() for r in found] == ["t/a/llm/r2/0"]
    assert made.moves["t/a"] == ReplicaMove(90.0)


# -- for a floor, for memory, for the target -------------------------------------------------------


def test_a_replica_makes_room_for_the_least_number_of_another_service() -> None:
    """Only the large worker can have the new service, and the older one fits on both."""
    small = service("small", 0.0, {SLOW: 10.0})
    world = ServingWorld.of([device("large", SLOW, 1, 6000)], small).run(LOADED)
    world.workers["other"] = device("other", SLOW, 5)
    world.services.append(service("big", 0.0, {SLOW: 10.0}, memory_mib=5000))
    world.run(4 * MINUTE)
    assert world.places() == {"large": ["big"], "other": ["small"]}
    assert {s: len(begun) for s, begun in world.begun_s.items()} == {"t/small": 1}


def test_a_replica_makes_no_room_where_its_service_would_serve_less() -> None:
    small = service("small", 10.0, {SLOW: 5.0, FAST: 50.0})
    world = ServingWorld.of([device("large", FAST, 1, 6000)], small).run(LOADED)
    world.workers["other"] = device("other", SLOW, 5)
    world.services.append(service("big", 0.0, {FAST: 10.0}, memory_mib=5000))
    assert world.run(4 * MINUTE).places() == {"large": ["small"]}
    assert "no worker has 5000 MiB free" in world.made.placement.reasons["t/big", "llm"]


def test_no_replica_makes_room_where_a_pool_grows_or_where_that_does_not_suffice() -> None:
    small, big = demand("small"), demand("big", info=signature("big", memory_mib=7000))
    large = replace(device("large", SLOW, 1, 8000), free_memory_mib=5000, replica_memory_mib=3000)
    held, ready = {"large": ["t/small/llm/r1/0"]}, {"t/small/llm/r1/0"}
    pinned = {"large": {small.info.signature}}
    fleet = FleetView([large, device("other", SLOW, 5)], held=held, ready=ready, pinned=pinned)
    moves = {"t/small": ReplicaMove(0.0)}
    assert plan_replicas([small, big], fleet, moves, 99.0).moves["t/small"].coming
    pool = PoolView("pool", large.shape, maximum=5)
    grown = plan_replicas([small, big], replace(fleet, pools=[pool]), moves, 99.0)
    assert not grown.moves["t/small"].coming
    assert grown.floors["pool"] == 3
    huge = demand("big", info=signature("big", memory_mib=8500))
    assert not plan_replicas([small, huge], fleet, moves, 99.0).moves["t/small"].coming


def test_one_of_two_replicas_leaves_a_worker_whose_memory_they_exceed() -> None:
    """Running out of memory has taught that both need more than was thought."""
    small = demand("small", info=signature("small", memory_mib=1500))
    big = demand("big", info=signature("big", memory_mib=3000))
    full = replace(device("full", SLOW, 1, 4000), free_memory_mib=-500, replica_memory_mib=4500)
    fleet = FleetView(
        [full, device("other", SLOW, 5)],
        held={"full": ["t/big/llm/r1/0", "t/small/llm/r1/0"]},
        ready={"t/big/llm/r1/0", "t/small/llm/r1/0"},
        pinned={"full": {small.info.signature, big.info.signature}},
    )
    moves = {"t/small": ReplicaMove(0.0), "t/big": ReplicaMove(0.0)}
    made = plan_replicas([big, small], fleet, moves, 99.0)
    assert ids(made)["other"] == ["t/small/llm/r1/1"], "the one with the least memory"
    assert len(ids(made)["full"]) == 2


def test_a_replica_that_needs_more_than_its_whole_worker_goes_elsewhere() -> None:
    big = demand("a", info=signature("a", memory_mib=5000))
    fleet = FleetView(
        [replace(device("w0", SLOW), free_memory_mib=-1500), device("w1", SLOW, memory_mib=8000)],
        held={"w0": ["t/a/llm/r1/0"]},
        pinned={"w0": {big.info.signature}},
    )
    assert ids(plan_replicas([big], fleet)) == {"w1": ["t/a/llm/r1/1"]}


def test_a_replica_that_is_too_slow_where_it_is_runs_until_a_faster_one_is_ready() -> None:
    slow = {SLOW: "llm takes 500 ms alone on slow, its part of the target is 100 ms"}
    one = replace(demand("a"), too_slow=slow)
    full = replace(device("w0", SLOW), free_memory_mib=500)
    fleet = FleetView([full], held={"w0": ["t/a/llm/r1/0"]}, ready={"t/a/llm/r1/0"})
    moves = {"t/a": ReplicaMove(0.0)}
    alone = plan_replicas([one], fleet, moves, 99.0)
    assert ids(alone) == {"w0": ["t/a/llm/r1/0"]}
    assert alone.reasons == {one.key: slow[SLOW]}
    fast = device("w1", FAST)
    pool = PoolView("fast", msgspec.structs.replace(fast.shape, pool="fast"), maximum=1)
    grown = plan_replicas([one], replace(fleet, pools=[pool]), moves, 99.0)
    assert grown.floors == {"fast": 1}
    assert grown.reasons == {one.key: f"{slow[SLOW]}; waits for a worker of pool fast"}
    room = replace(fleet, workers=[full, fast])
    made = plan_replicas([one], room, moves, 99.0)
    assert ids(made) == {"w0": ["t/a/llm/r1/0"], "w1": ["t/a/llm/r1/1"]}
    assert made.reasons == {}


def test_of_too_many_replicas_those_stay_that_serve_the_demand() -> None:
    """Two of three are wanted: the two cheap ones together are not enough."""
    one = replace(demand("a", 2), rate_per_s=100.0, capacity_per_s={SLOW: 30.0, FAST: 90.0})
    fleet = FleetView(
        [device("s0", SLOW, 1), device("s1", SLOW, 2), device("f0", FAST, 9)],
        held={name: [f"t/a/llm/r1/{n}"] for n, name in enumerate(("s0", "s1", "f0"))},
    )
    assert set(ids(plan_replicas([one], fleet))) == {"s0", "f0"}
    enough = replace(one, rate_per_s=60.0)
    assert set(ids(plan_replicas([enough], fleet))) == {"s0", "s1"}


# -- no sequence of plans flaps --------------------------------------------------------------------


def measured(one: PlannedComponent, rng: random.Random) -> PlannedComponent:
    """Returns a component as it is measured once: rates and times differ by up to 4 %."""
    profiles = {
        c: BatchProfile.of({1: profile.at(1) * rng.uniform(0.98, 1.02)})
        for c, profile in one.profiles.items()
    }
    rate_per_s = (one.rate_per_s or 0.0) * rng.uniform(0.98, 1.02)
    return replace(one, profiles=profiles, rate_per_s=rate_per_s)


def test_measurements_that_differ_by_chance_move_nothing() -> None:
    """Two classes of device are equally fast; each measurement prefers another one."""
    world, rng = two_devices(100.0, 50.0, 50.0), random.Random(7)
    (steady,) = world.services
    for _ in range(30 * MINUTE):
        world.services = [measured(steady, rng)]
        world.step()
    assert world.begun_s == {}


PEAK = st.floats(5, 100)
SERVICE = st.tuples(
    st.floats(0, 200), PEAK, PEAK, st.integers(1, 2), st.integers(0, 2), st.integers(500, 3000)
)
WORKER = st.tuples(st.sampled_from([SLOW, FAST]), st.integers(1, 9), st.integers(1000, 6000))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(SERVICE, min_size=1, max_size=2),
    st.lists(WORKER, min_size=1, max_size=3),
    st.lists(WORKER, max_size=3),
    st.integers(0, 1 << 30),
)
@example(
    services=[(0.0, 5.0, 5.0, 2, 0, 500), (7.0, 5.0, 7.0, 2, 0, 500)],
    workers=[(SLOW, 1, 1000)],
    later=[(SLOW, 1, 1000), (FAST, 2, 1000)],
    seed=0,
)
def test_with_a_steady_demand_moves_end_and_none_goes_below_the_floor(
    services: list[tuple[float, float, float, int, int, int]],
    workers: list[tuple[str, int, int]],
    later: list[tuple[str, int, int]],
    seed: int,
) -> None:
    """The world checks the floors, the memory and the minute at every step."""
    rng = random.Random(seed)
    steady = [
        service(f"a{n}", rate, {SLOW: slow, FAST: fast}, least=least, most=least + more,
                memory_mib=mib)
        for n, (rate, slow, fast, least, more, mib) in enumerate(services)
    ]  # fmt: skip
    world = ServingWorld.of([device(f"w{n}", *w) for n, w in enumerate(workers)], *steady)
    world.run(2 * MINUTE)
    for n, found in enumerate(later):
        world.workers[f"l{n}"] = device(f"l{n}", *found)
    replicas = sum(one.most for one in steady)
    noisy = 3 * MINUTE * (replicas + 2)
    for _ in range(noisy):
        world.services = [measured(one, rng) for one in steady]
        world.step()
    begun = sum(map(len, world.begun_s.values()))
    assert begun <= 2 * replicas, world.begun_s
    world.run(3 * MINUTE)
    assert sum(map(len, world.begun_s.values())) == begun, "none begins after all this time"
