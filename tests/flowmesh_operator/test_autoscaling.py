"""The size of a pool in virtual time: from zero, to zero, and never past a worker that is busy."""

import random

import pytest
from tests.flowmesh_operator.pool_in_virtual_time import Sim

from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.settings import SUPPLY_PATIENCE_MIN_S
from flowmesh_operator.pools.autoscaling import (
    ABSENT_S,
    AUTOSCALER_REACTION_S,
    FIRST_START_S,
    MARKED,
    UNMARKED,
    PodObservation,
    PoolObservation,
    PoolScaler,
    WorkerObservation,
)

HOURS_2 = 7200.0


def test_a_pool_grows_from_zero_to_its_maximum_and_back_to_zero() -> None:
    sim = Sim(maximum=5, stabilization_s=300.0)
    sim.submit(*[30.0] * 60)
    sim.run(1)
    assert sim.replicas >= 1
    sim.run(200)
    assert sim.replicas == 5
    sim.run(3000, until=sim.idle)
    assert sim.idle()
    sim.run(310)
    assert sim.replicas == 0
    assert sim.pods == {}
    grew = [n for _, n in sim.sizes[: sim.sizes.index(max(sim.sizes, key=lambda s: s[1])) + 1]]
    assert grew == sorted(grew)


@pytest.mark.slow
def test_a_training_of_two_hours_never_loses_its_worker() -> None:
    sim = Sim(maximum=4, stabilization_s=60.0)
    sim.submit(*[10.0] * 40)
    long = sim.submit(HOURS_2)
    sim.run(900)
    assert sim.replicas == 1
    (busy,) = sim.pods
    sim.run(HOURS_2, until=sim.idle)
    assert sim.world.finals[long].phase == "Succeeded"
    assert list(sim.pods) == [busy]
    sim.run(200)
    assert sim.replicas == 0


@pytest.mark.slow
def test_repeated_bursts_do_not_make_a_pool_flap() -> None:
    sim = Sim(maximum=4, stabilization_s=300.0)
    for _ in range(10):
        sim.submit(*[10.0] * 30)
        sim.run(150)
    sizes = [n for _, n in sim.sizes]
    assert sizes == sorted(sizes), "it only grew while bursts kept coming"
    assert len(sizes) <= 4
    sim.run(3000, until=lambda: sim.replicas == 0)
    assert sim.replicas == 0


def test_a_worker_that_arrives_after_an_outage_counts_at_most_the_time_it_was_waited_for() -> None:
    sim = Sim(maximum=1, start_s=7200.0, stabilization_s=30.0)
    sim.submit(30.0)
    sim.run(9000, until=sim.idle)
    assert sim.scaler.start_s == pytest.approx(
        FIRST_START_S + 0.3 * (SUPPLY_PATIENCE_MIN_S - FIRST_START_S)
    )


@pytest.mark.slow
def test_the_start_time_of_workers_is_learned() -> None:
    sim = Sim(maximum=3, start_s=90.0, stabilization_s=30.0)
    for _ in range(6):
        sim.submit(*[30.0] * 12)
        sim.run(3000, until=sim.idle)
        sim.run(120)
    assert 60.0 < sim.scaler.start_s < 130.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_under_random_loads_no_busy_worker_is_removed_and_all_work_completes(seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim(
        maximum=rng.randrange(1, 6),
        minimum=0,
        stabilization_s=rng.choice((5.0, 30.0, 120.0)),
        start_s=rng.choice((1.0, 20.0, 60.0)),
        delay_s=rng.choice((0.0, 0.0, 3.0)),
        rng=rng,
    )
    for _ in range(rng.randrange(3, 9)):
        sim.submit(*[rng.choice((1.0, 5.0, 40.0, 200.0)) for _ in range(rng.randrange(1, 12))])
        sim.run(rng.randrange(1, 150))
        if rng.random() < 0.3:
            sim.scaler = sim.new_scaler()  # another replica leads
        if rng.random() < 0.3:
            sim.maximum = rng.randrange(1, 6)
    sim.run(20_000, until=sim.idle)
    assert sim.idle()
    sim.run(600)
    assert sim.replicas == 0
    assert sim.pods == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 6, 9, 17, 33, 40])
def test_an_external_autoscaler_removes_no_busy_worker_however_late_it_reacts(seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim(
        maximum=rng.randrange(2, 6),
        stabilization_s=rng.choice((2.0, 5.0, 30.0)),
        start_s=rng.choice((1.0, 10.0)),
        delay_s=rng.choice((0.0, 2.0)),
        every_s=rng.choice((1, 5, 15)),
        stale_s=rng.choice((0.0, 3.0, 15.0)),
        rng=rng,
    )
    for _ in range(rng.randrange(4, 10)):
        sim.submit(*[rng.choice((1.0, 5.0, 40.0, 100.0)) for _ in range(rng.randrange(1, 8))])
        sim.run(rng.randrange(1, 90))
        if rng.random() < 0.3:
            sim.scaler = sim.new_scaler()  # another replica leads
        if rng.random() < 0.3:
            sim.maximum = rng.randrange(1, 6)
    sim.run(20_000, until=sim.idle)
    assert sim.idle()
    sim.run(600)
    assert sim.replicas == 0
    assert sim.pods == {}


VIEW = PoolView("p", Sim().view().shape, 0, 5)


def calm_scaler(replicas: int) -> PoolScaler:
    """Returns a scaler that has observed this surplus for the whole delay."""
    scaler = PoolScaler(target_s=60.0, stabilization_s=10.0, replicas=replicas, now_s=0.0)
    scaler.plan(VIEW, Backlog(), PoolObservation(replicas, {}), 5.0)
    return scaler


def pods(*names: str, **changes: object) -> list[PodObservation]:
    return [PodObservation(n, **{"ready": True, **changes}) for n in names]  # type: ignore[arg-type]


def test_a_worker_is_cordoned_and_marked_first_and_removed_if_it_is_still_idle() -> None:
    scaler = calm_scaler(2)
    workers = {"a": WorkerObservation(assigned=1), "b": WorkerObservation()}
    busy = Backlog(running_s=10.0, busy=1)
    first = scaler.plan(VIEW, busy, PoolObservation(2, workers, pods("a", "b")), 20.0)
    assert (first.cordon, first.marks, first.replicas) == ({"b"}, {"b": MARKED}, None)
    marked = [*pods("a"), *pods("b", cost=MARKED)]
    second = scaler.plan(VIEW, busy, PoolObservation(2, workers, marked), 21.0)
    assert (second.cordon, second.replicas) == ({"b"}, 1)


def test_a_worker_that_got_work_before_it_was_cordoned_completes_it_first() -> None:
    scaler = calm_scaler(1)
    scaler.plan(VIEW, Backlog(), PoolObservation(1, {"a": WorkerObservation()}, pods("a")), 20.0)
    marked = pods("a", cost=MARKED)
    after = scaler.plan(
        VIEW, Backlog(), PoolObservation(1, {"a": WorkerObservation(assigned=1)}, marked), 21.0
    )
    assert (after.cordon, after.marks, after.replicas) == ({"a"}, {"a": UNMARKED}, None)


def test_a_worker_with_work_of_another_preferred_pool_completes_it_and_is_removed() -> None:
    scaler = calm_scaler(1)
    elsewhere = Backlog(busy=1)
    first = scaler.plan(
        VIEW, elsewhere, PoolObservation(1, {"a": WorkerObservation(assigned=1)}, pods("a")), 20.0
    )
    assert (first.cordon, first.marks, first.replicas) == ({"a"}, {}, None)
    scaler.plan(VIEW, Backlog(), PoolObservation(1, {"a": WorkerObservation()}, pods("a")), 21.0)
    marked = pods("a", cost=MARKED)
    last = scaler.plan(
        VIEW, Backlog(), PoolObservation(1, {"a": WorkerObservation()}, marked), 22.0
    )
    assert (last.cordon, last.replicas) == ({"a"}, 0)


def test_new_work_uncordons_a_worker() -> None:
    scaler = calm_scaler(2)
    workers = {"a": WorkerObservation(), "b": WorkerObservation()}
    assert scaler.plan(VIEW, Backlog(), PoolObservation(2, workers, pods("a", "b")), 20.0).cordon
    more = Backlog(ready_s=500.0, actions=50)
    after = scaler.plan(VIEW, more, PoolObservation(2, workers), 21.0)
    assert after.cordon == frozenset()
    assert after.replicas == 5
    assert set(after.marks.values()) == {UNMARKED}


def test_workers_that_are_not_ready_are_removed_first_then_those_with_least_to_lose() -> None:
    scaler = calm_scaler(4)
    workers = {
        "warm": WorkerObservation(warm_bytes=10**9),
        "cold": WorkerObservation(),
        "on": WorkerObservation(1),
    }
    seen = [*pods("warm", "cold", "on"), PodObservation("starting")]
    one = Backlog(running_s=60.0, ready_s=40.0, busy=1, actions=1)
    planned = scaler.plan(VIEW, one, PoolObservation(4, workers, seen), 20.0)
    assert planned.wanted == 2
    assert planned.cordon == {"starting", "cold"}


def test_a_ready_but_unconnected_worker_counts_as_busy_until_its_agent_would_have_exited() -> None:
    scaler = calm_scaler(1)
    lost = PoolObservation(1, {}, pods("a"))
    assert scaler.plan(VIEW, Backlog(), lost, 20.0).cordon == frozenset()
    assert scaler.plan(VIEW, Backlog(), lost, 20.0 + ABSENT_S - 1.0).cordon == frozenset()
    assert scaler.plan(VIEW, Backlog(), lost, 20.0 + ABSENT_S).cordon == {"a"}


def test_no_worker_is_removed_right_after_a_takeover() -> None:
    scaler = calm_scaler(3)
    seen = PoolObservation(3, {}, pods("a", "b", "c"), steady=False)
    planned = scaler.plan(VIEW, Backlog(), seen, 20.0)
    assert (planned.wanted, planned.cordon, planned.replicas) == (3, frozenset(), None)
    assert planned.external_target == 3


def test_an_external_autoscaler_sees_a_lower_target_once_the_leaving_workers_are_marked() -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=10.0, replicas=3, now_s=0.0, by_another=True)
    workers = {
        "a": WorkerObservation(assigned=1),
        "b": WorkerObservation(),
        "c": WorkerObservation(),
    }
    busy = Backlog(running_s=10.0, busy=1)
    first = scaler.plan(VIEW, busy, PoolObservation(3, workers), 5.0)
    assert (first.external_target, first.needs_pods) == (3, True), (
        "what an earlier leader marked is seen first"
    )
    scaler.plan(VIEW, busy, PoolObservation(3, workers, pods(*"abc")), 5.0)
    planned = scaler.plan(VIEW, busy, PoolObservation(3, workers, pods(*"abc")), 20.0)
    assert (planned.wanted, planned.external_target, set(planned.marks)) == (1, 3, {"b", "c"})
    marked = [*pods("a", "b"), *pods("c", cost=MARKED)]
    assert scaler.plan(VIEW, busy, PoolObservation(3, workers, marked), 21.0).external_target == 2
    more = Backlog(ready_s=500.0, actions=50)
    again = scaler.plan(VIEW, more, PoolObservation(3, workers), 22.0)
    assert again.external_target == 5
    assert again.cordon == {"b", "c"}, "it may act on two or on one for a while yet"
    later = scaler.plan(VIEW, more, PoolObservation(3, workers), 22.0 + AUTOSCALER_REACTION_S)
    assert later.cordon == frozenset()


def test_an_external_autoscaler_sees_no_dip_before_the_pool_has_grown() -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=1.0, replicas=0, now_s=0.0, by_another=True)
    nothing = PoolObservation(0, {}, [])
    assert scaler.plan(VIEW, Backlog(ready_s=200.0, actions=9), nothing, 1.0).external_target == 4
    assert scaler.plan(VIEW, Backlog(ready_s=100.0, actions=9), nothing, 9.0).external_target == 4
    late = 2.0 + AUTOSCALER_REACTION_S
    assert scaler.plan(VIEW, Backlog(ready_s=100.0, actions=9), nothing, late).external_target == 2


def test_the_start_time_is_learned_once_per_requested_worker() -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=1.0, replicas=0, now_s=0.0, by_another=True)
    work = Backlog(ready_s=30.0, actions=1)
    for now_s in (1.0, 2.0, 3.0):
        scaler.plan(VIEW, work, PoolObservation(0, {}, []), now_s)
    scaler.plan(VIEW, work, PoolObservation(1, {"a": WorkerObservation()}), 11.0)
    learned_s = scaler.start_s
    assert learned_s == pytest.approx(FIRST_START_S + 0.3 * (10.0 - FIRST_START_S))
    scaler.plan(VIEW, work, PoolObservation(1, {"b": WorkerObservation()}), 500.0)
    assert scaler.start_s == learned_s, "nobody asked for that one"


def test_a_new_scaler_does_not_shrink_a_pool_at_once() -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=100.0, replicas=3, now_s=0.0)
    workers = {n: WorkerObservation() for n in "abc"}
    for now_s in (0.0, 50.0, 99.0):
        assert (
            scaler.plan(VIEW, Backlog(), PoolObservation(3, workers, pods(*"abc")), now_s).wanted
            == 3
        )
    assert (
        scaler.plan(VIEW, Backlog(), PoolObservation(3, workers, pods(*"abc")), 101.0).wanted == 0
    )


def test_busy_workers_above_a_lowered_maximum_complete_their_work_and_get_no_more() -> None:
    scaler = calm_scaler(3)
    low = PoolView("p", VIEW.shape, 0, 1)
    workers = {"a": WorkerObservation(1), "b": WorkerObservation(2), "c": WorkerObservation(3)}
    three = Backlog(running_s=100.0, busy=3)
    planned = scaler.plan(low, three, PoolObservation(3, workers, pods(*"abc")), 20.0)
    assert planned.cordon == {"a", "b"}
    assert planned.marks == {}
    assert planned.replicas is None


def test_the_minimum_size_is_retained_without_any_work() -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=10.0, replicas=0, now_s=0.0)
    planned = scaler.plan(PoolView("p", VIEW.shape, 2, 5), Backlog(), PoolObservation(0, {}), 1.0)
    assert planned.replicas == 2
    assert "at least" in planned.reason


@pytest.mark.parametrize(
    ("backlog", "reason"),
    [
        (Backlog(steady=2), "2 workers pay at the rate at which work arrives"),
        (Backlog(steady=1, overflow=1), "2 workers, 1 of them to help a pool that is full"),
        (Backlog(serving=2, steady=2), "replicas of services need 2 workers"),
        (Backlog(for_open_steps=2, steady=1), "2 workers keep the engines in demand prewarmed"),
    ],
)
def test_a_pool_that_grows_without_waiting_work_says_why(backlog: Backlog, reason: str) -> None:
    scaler = PoolScaler(target_s=60.0, stabilization_s=10.0, replicas=0, now_s=0.0)
    planned = scaler.plan(PoolView("p", VIEW.shape, 0, 5), backlog, PoolObservation(0, {}), 1.0)
    assert (planned.replicas, planned.reason) == (2, reason)
