"""Replicas of services: their memory is never given away, their workers are busy, services pay."""

import random
from collections import Counter
from typing import Any

import pytest
from tests.flowmesh_core.machine.world import NOOP, PRICE, SOLO, World, plan, shape, step

from flowmesh_core.autoscaling.backlog import Backlog, signal_of
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.graph.plan import Resources
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import events as e
from flowmesh_core.machine import fleet_snapshot
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.serving import plan_is_current
from flowmesh_core.protocol.messages import (
    EngineInstanceState,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
    ServingReplicaState,
)

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
ROUTERS = (RouterAddress("unix:/run/router"),)
HOUR_S = 3600.0


def replica(service: str, memory_mib: int = 1000, number: int = 0) -> ServingReplica:
    """A replica whose engine is known by its service."""
    opening = PrewarmSpec(digest_bytes(service.encode()), NOOP.name, 1, 1, memory_mib=memory_mib)
    return ServingReplica(f"{service}/llm/r1/{number}", service, "llm", "r1", opening)


def state_of(one: ServingReplica, state: str = "ready", **changes: Any) -> ServingReplicaState:
    """What a worker reports of a replica."""
    opening = one.opening
    values = {"signature": opening.signature, "memory_mib": opening.memory_mib, **changes}
    return ServingReplicaState(one.replica_id, state, **values)


def planned(world: World, **workers: tuple[ServingReplica, ...]) -> None:
    """The planner has decided which worker holds what."""
    world.apply(e.ServingPlanChanged(workers, ROUTERS))


def free_mib(world: World, worker: str = "w") -> int:
    seen = snapshot(world.machine.state, world.now)
    return next(w.free_memory_mib for w in seen.workers if w.name == worker)


def sized(world: World, memory_mib: int, count: int = 1, **params: Any) -> str:
    """A run of steps that each need a host of this size."""
    steps = [
        step(f"s{n}", uses=SOLO, resources=Resources(memory_mib=memory_mib), n=n, **params)
        for n in range(count)
    ]
    return world.submit(plan(*steps))


def test_a_worker_is_sent_its_replicas_when_they_change() -> None:
    world, one, two = World(), replica("team-a/ask"), replica("team-b/chat")
    world.join("w", "v", replicas=())
    planned(world, w=(one,))
    planned(world, w=(one,))
    planned(world, w=(one, two))
    planned(world)
    assert [(s.worker, s.replicas) for s in world.served] == [
        ("w", (one,)),
        ("w", (one, two)),
        ("w", ()),
    ]
    assert {s.routers for s in world.served} == {ROUTERS}


def test_a_worker_that_connects_again_is_sent_its_replicas_again() -> None:
    world, one = World(), replica("team-a/ask")
    world.join("w", replicas=())
    planned(world, w=(one,))
    state = world.machine.state
    assert plan_is_current(state, {"w": (one,)}, ROUTERS)
    world.hello("w", replicas=(state_of(one),))
    assert not plan_is_current(state, {"w": (one,)}, ROUTERS)
    assert not plan_is_current(state, {}, ROUTERS)
    planned(world, w=(one,))
    assert len(world.served) == 2


def test_the_memory_of_a_replica_is_not_free_before_it_is_loaded_nor_after_it_has_failed() -> None:
    world, one = World(), replica("team-a/ask", 1500)
    world.join("w", replicas=())
    assert free_mib(world) == 4096
    planned(world, w=(one,))
    assert free_mib(world) == 2596
    for state in ("fetching", "loading", "ready", "failed"):
        world.serves("w", state_of(one, state))
        assert free_mib(world) == 2596
    planned(world)
    assert free_mib(world) == 2596, "the worker has not closed it yet"
    world.serves("w")
    assert free_mib(world) == 4096


def test_a_new_leader_does_not_give_the_memory_of_replicas_away_before_it_has_a_plan() -> None:
    world, one = World(), replica("team-a/ask", 3500)
    world.join("w", replicas=(state_of(one),))
    sized(world, 1000)
    world.tick(0.1)
    assert world.attempts() == []
    world.serves("w")
    world.tick(0.1)
    assert len(world.attempts()) == 1


def test_a_replica_that_a_worker_refuses_takes_no_memory() -> None:
    world, one = World(), replica("team-a/ask", 3500)
    world.join("w", replicas=())
    planned(world, w=(one,))
    world.serves("w", state_of(one, "failed", memory_mib=0))
    assert free_mib(world) == 4096


def check_that_memory_of_replicas_is_kept(*seeds: int) -> None:
    """Places random work beside replicas; fails where both need more than a worker has."""
    for seed in seeds:
        _place_beside_replicas(seed)


def _place_beside_replicas(seed: int) -> None:
    rng, world = random.Random(seed), World()
    names = ["w", "v", "u"]
    world.join(*names, replicas=())
    pinned: Counter[str] = Counter()
    where: dict[str, tuple[ServingReplica, ...]] = {}
    for name in names:
        sizes = [rng.randrange(300, 2000) for _ in range(rng.randrange(3))]
        where[name] = tuple(replica(f"t/{name}{n}", mib) for n, mib in enumerate(sizes))
        pinned[name] = sum(sizes)
    planned(world, **where)
    for _ in range(8):
        sized(world, rng.randrange(200, 1800), rng.randrange(1, 5), salt=rng.random())
        world.tick(0.1)
        for name in names:
            if rng.random() < 0.5:
                states = [state_of(r, rng.choice(("loading", "ready"))) for r in where[name]]
                world.serves(name, *states)
            hosts = {a.signature: a.memory_mib for a in world.held.get(name, {}).values()}
            assert sum(hosts.values()) + pinned[name] <= 4096, "memory was given away"
        for attempt in world.attempts():
            if rng.random() < 0.5:
                world.finish(attempt.attempt_id)


@pytest.mark.parametrize("seed", [*range(20), FRESH])
def test_placement_never_takes_the_memory_of_a_replica(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    check_that_memory_of_replicas_is_kept(seed)


def test_a_placement_that_does_not_see_replicas_takes_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_snapshot.serving, "pinned_mib", lambda _: {})
    with pytest.raises(AssertionError, match="memory was given away"):
        check_that_memory_of_replicas_is_kept(*range(20))


def test_attempts_join_the_instance_of_a_replica_on_a_worker_that_is_full() -> None:
    world = World()
    world.join("w", replicas=())
    sized(world, 4000)
    world.tick(0.1)
    (first,) = world.attempts()
    opening = PrewarmSpec(first.signature, SOLO.name, 1, 1, memory_mib=4000)
    one = ServingReplica("t/a/llm/r1/0", "t/a", "llm", "r1", opening)
    planned(world, w=(one,))
    world.serves("w", state_of(one))
    instance = EngineInstanceState(first.signature, SOLO.name, "ready", 1, 4000)
    world._sync("w", instances=(instance,))
    world.finish(first.attempt_id)
    assert free_mib(world) == 96
    sized(world, 4000, other=True)
    world.tick(0.1)
    assert len(world.attempts()) == 1
    assert free_mib(world) == 96


# -- pools ---------------------------------------------------------------------------------------


def backlog(world: World, **serving: int) -> Backlog:
    seen = snapshot(world.machine.state, world.now)
    view = PoolView("default", shape("any"), maximum=5)
    return signal_of(seen, world.machine.state.model, [view], serving=serving).backlogs["default"]


def test_a_worker_that_only_serves_is_busy_to_its_pool() -> None:
    world, one = World(), replica("team-a/ask")
    world.join("w", "v", replicas=())
    assert backlog(world).busy == 0
    planned(world, w=(one,))
    assert backlog(world).busy == 1
    world.serves("w", state_of(one, "failed"))
    assert backlog(world).busy == 0, "one that cannot be loaded does not keep a worker"


def test_a_pool_grows_from_zero_for_replicas_and_shrinks_when_they_are_gone() -> None:
    world, sizer = World(), PoolSizer(stabilization_s=10.0)
    view = PoolView("default", shape("any"), maximum=5)
    assert sizer.sizes(view, backlog(world), 0, 0.0).workers == 0
    assert sizer.sizes(view, backlog(world, default=2), 0, 1.0).workers == 2
    assert sizer.sizes(view, backlog(world, default=9), 2, 2.0).workers == 5
    assert sizer.sizes(view, backlog(world), 2, 20.0).workers == 0


def test_a_signal_without_services_is_what_it_was() -> None:
    world = World()
    world.join("w")
    seen = snapshot(world.machine.state, world.now)
    view = PoolView("default", shape("any"), maximum=5)
    found = signal_of(seen, world.machine.state.model, [view]).backlogs
    assert found["default"] == Backlog()


# -- money ---------------------------------------------------------------------------------------


def spent(world: World) -> dict[str, int]:
    return dict(world.machine.state.service_spend)


def test_replicas_without_calls_pay_for_an_idle_worker_by_their_memory() -> None:
    world, one, two = World(), replica("t/a", 1000), replica("t/b", 3000)
    world.join("w", replicas=())
    planned(world, w=(one, two))
    world.serves("w", state_of(one), state_of(two, "loading"))
    before = world.machine.state.book.fabric_nanousd
    world.tick(100.0)
    cost = PRICE * 100 // 3600
    assert spent(world) == {"t/a": cost // 4, "t/b": cost - cost // 4}
    assert world.machine.state.book.fabric_nanousd == before


def test_what_services_runs_and_the_fabric_paid_by_day_is_what_the_worker_cost() -> None:
    world, one = World(), replica("t/a", 1000)
    world.now = 86400.0 - 10.0
    world.join("w", replicas=())
    planned(world, w=(one,))
    world.serves("w", state_of(one))
    sized(world, 500)
    world.tick(0.1)
    (attempt,) = world.attempts()
    world.begin(attempt.attempt_id)
    world.tick(9.8)
    world.beat()
    world.tick(9.9)
    world.finish(attempt.attempt_id)
    world.tick(5.0)
    rows, book = world.machine.state.service_charges.rows(), world.machine.state.book
    assert [(r.service, str(r.day), r.pool) for r in rows] == [
        ("t/a", "1970-01-01", "default"),
        ("t/a", "1970-01-02", "default"),
    ]
    amounts = [PRICE * milliseconds // 3_600_000 for milliseconds in (5000, 4950 + 5000)]
    assert [r.paid_nanousd for r in rows] == amounts, "half of the time of the attempt"
    paid = sum(r.paid_nanousd for r in rows) + book.receipts_nanousd + book.fabric_nanousd
    assert paid == book.bill_nanousd == PRICE * 24_800 // 3_600_000


def test_a_replica_and_an_attempt_in_other_instances_pay_equal_parts() -> None:
    world, one = World(), replica("t/a", 1000)
    world.join("w", replicas=())
    planned(world, w=(one,))
    world.serves("w", state_of(one))
    sized(world, 500)
    world.tick(0.1)
    (attempt,) = world.attempts()
    world.begin(attempt.attempt_id)
    before = spent(world)["t/a"]
    world.tick(10.0)
    assert spent(world)["t/a"] - before == PRICE * 10 // 3600 // 2


def test_within_an_instance_calls_and_attempts_pay_by_the_work_done() -> None:
    world = World()
    world.join("w", replicas=())
    sized(world, 500)
    world.tick(0.1)
    (attempt,) = world.attempts()
    opening = PrewarmSpec(attempt.signature, SOLO.name, 1, 1, memory_mib=500)
    one = ServingReplica("t/a/llm/r1/0", "t/a", "llm", "r1", opening)
    planned(world, w=(one,))
    world.serves("w", state_of(one))
    world.begin(attempt.attempt_id)
    world.tick(10.0)
    assert spent(world) == {}, "an attempt runs in the instance, and no call"
    world.now += 10.0
    worker = world.machine.state.workers["w"]
    worker.replica_states = {one.replica_id: state_of(one, calls=1, units=300)}
    world.begin(attempt.attempt_id, units=100)
    assert spent(world) == {"t/a": PRICE * 10 // 3600 * 3 // 4}


def test_a_worker_cannot_charge_a_service_for_a_replica_that_it_was_not_given() -> None:
    world, one = World(), replica("t/a", 1000)
    world.join("w", replicas=())
    world.serves("w", state_of(one, calls=3))
    world.tick(100.0)
    assert spent(world) == {}
    assert world.machine.state.book.fabric_nanousd == PRICE * 100 // 3600


@pytest.mark.parametrize("seed", [*range(20), FRESH])
def test_receipts_services_and_fabric_are_the_bill_at_all_times(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    rng, world = random.Random(seed), World()  # every event checks the sums
    names = ["w", "v"]
    world.join(*names, replicas=())
    services = [replica(f"t/{n}", rng.randrange(100, 1500)) for n in range(3)]
    for _ in range(40):
        name = rng.choice(names)
        match rng.randrange(5):
            case 0:
                chosen = {n: tuple(rng.sample(services, rng.randrange(3))) for n in names}
                planned(world, **chosen)
            case 1:
                states = (
                    state_of(r, calls=rng.randrange(2), units=rng.randrange(1000))
                    for r in rng.sample(services, rng.randrange(3))
                )
                world.serves(name, *states)
            case 2:
                sized(world, rng.randrange(100, 900), salt=rng.random())
            case 3 if world.attempts():
                world.finish(rng.choice(world.attempts()).attempt_id)
            case 4 if rng.random() < 0.2:
                world.lose(name)
                world.join(name, replicas=())
        world.tick(rng.choice((0.1, 3.0)))
        world.beat()
    world.run()
    book = world.machine.state.book
    assert book.bill_nanousd == book.receipts_nanousd + book.services_nanousd + book.fabric_nanousd
    assert book.services_nanousd > 0


# -- what can be seen ----------------------------------------------------------------------------


def test_the_time_in_which_no_replica_has_a_call_is_used_by_attempts_or_unused() -> None:
    world, one, two = World(), replica("t/a", 1000), replica("t/b", 1000)
    world.join("w", "without", replicas=())
    planned(world, w=(one, two))
    world.serves("w", state_of(one), state_of(two))
    world.tick(1.0)  # from then on time is counted
    idle_s = world.machine.state.figures.replica_idle_s["default"]
    idle_s[:] = [0.0, 0.0]
    world.tick(4.0)
    assert idle_s == [0.0, 4.0], "the worker without a replica does not count"
    sized(world, 500, count=2)
    world.tick(0.0)
    for attempt in world.attempts():
        world.begin(attempt.attempt_id)
    world.tick(3.0)
    assert idle_s == [3.0, 4.0]
    world.serves("w", state_of(one, calls=1), state_of(two))
    world.tick(2.0)
    assert idle_s == [3.0, 4.0]
