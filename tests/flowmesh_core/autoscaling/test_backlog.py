from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.flowmesh_core.placement.builders import NOW_S, action, lane, signature, snapshot, worker
from tests.flowmesh_core.placement.instances import random_snapshot

from flowmesh_core.autoscaling.backlog import Backlog, signal_of
from flowmesh_core.autoscaling.bounded_growth import split_workers
from flowmesh_core.autoscaling.objective import value_of_time
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.settings import VALUE_OF_TIME_NANOUSD_PER_HOUR
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.worker_bounds import WorkerUse
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.protocol.messages import EngineVersion

SQL = signature("sql", engine="data.sql", memory_mib=500)
LLM = signature("llm", capacity=8, components={"m": 16_000_000_000}, work_unit="tokens")


def pool(name, **shape):
    limits = {k: shape.pop(k) for k in ("minimum", "maximum", "start_s") if k in shape}
    return PoolView(name, worker("any", pool=name, **shape).shape, **{"maximum": 10, **limits})


def backlog_of(snapshot, model, pools, warm=()):
    return signal_of(snapshot, model, pools, warm).backlogs


def test_an_empty_fleet_has_no_backlog():
    found = backlog_of(snapshot([], [], []), CostModel(), [pool("p")])
    assert found == {"p": Backlog()}
    assert found["p"].seconds == 0.0


def test_a_pool_without_workers_sees_the_work_that_only_it_can_do():
    pools = [pool("cpu", device_class="cpu", memory_mib=500), pool("gpu", memory_mib=40_000)]
    ready = [action(f"a{n}x", LLM) for n in range(5)]
    found = backlog_of(snapshot([], ready, [LLM]), CostModel(), pools)
    assert found["cpu"].seconds == 0.0
    assert found["gpu"].actions == 5
    assert found["gpu"].seconds > 0.0


def test_work_that_no_pool_can_run_counts_nowhere():
    found = backlog_of(
        snapshot([], [action("a", LLM)], [LLM]), CostModel(), [pool("p", memory_mib=10)]
    )
    assert found["p"].actions == 0


def test_running_work_counts_where_it_runs():
    at = worker(
        "w", lane(SQL, assigned=1, remaining_s=40.0), lane(LLM, assigned=3, remaining_s=7.0)
    )
    idle = worker("v", lane(SQL))
    found = backlog_of(snapshot([at, idle], [], [SQL]), CostModel(), [pool("pool")])
    found = found["pool"]
    assert (found.running_s, found.ready_s, found.busy) == (40.0, 0.0, 1)
    four_runs = 4 * VALUE_OF_TIME_NANOUSD_PER_HOUR
    assert found.waiting_nanousd_per_hour == four_runs, (
        "one for each action, where no more is known"
    )


def test_loading_is_not_part_of_the_signal():
    ready = [action("a", LLM)]
    cold = backlog_of(snapshot([worker("w")], ready, [LLM]), CostModel(), [pool("pool")])
    hot = backlog_of(snapshot([worker("w", lane(LLM))], ready, [LLM]), CostModel(), [pool("pool")])
    assert cold["pool"] == hot["pool"], "loading is not work that more workers would share"


def test_the_policy_of_the_work_chooses_the_pool():
    pools = [
        pool("cheap", device_class="nvidia-4090", price_nanousd_per_hour=10**8),
        pool("fast", device_class="nvidia-h100", price_nanousd_per_hour=10**10),
    ]
    work = WorkSize(tokens_out=10_000.0, component_bytes=16_000_000_000)
    ready = [
        action("a", LLM, weights=UtilityWeights(1, 0, 0), work=work),
        action("b", LLM, weights=UtilityWeights(0, 1, 0), work=work),
    ]
    found = backlog_of(snapshot([], ready, [LLM]), CostModel(), pools)
    assert (found["fast"].actions, found["cheap"].actions) == (1, 1)


def test_a_pool_whose_next_worker_has_the_weights_on_disk_is_preferred():
    pools = [pool("a"), pool("b")]
    ready = [action("a", LLM)]
    cold = backlog_of(snapshot([], ready, [LLM]), CostModel(), pools)
    assert (cold["a"].actions, cold["b"].actions) == (1, 0), "the first of equals"
    left = [pools[0], replace(pools[1], local=frozenset({LLM.components[0][0]}))]
    found = backlog_of(snapshot([], ready, [LLM]), CostModel(), left)
    assert (found["a"].actions, found["b"].actions) == (0, 1)
    saved_s = cold["a"].start_s - found["b"].start_s
    assert saved_s == pytest.approx(CostModel().fetch_s(16_000_000_000)), "nothing is fetched"


def test_a_pool_whose_network_is_known_to_be_slow_is_not_preferred_among_equals():
    pools, ready, model = [pool("a"), pool("b")], [action("a", LLM)], CostModel()
    unknown = backlog_of(snapshot([], ready, [LLM]), model, pools)
    model.observe_fetch("a", 16_000_000_000, 120.0)
    found = backlog_of(snapshot([], ready, [LLM]), model, pools)
    assert (found["a"].actions, found["b"].actions) == (0, 1)
    model.observe_fetch("b", 16_000_000_000, 240.0)
    found = backlog_of(snapshot([], ready, [LLM]), model, pools)
    later_s = 120.0 - CostModel().fetch_s(16_000_000_000)
    assert found["a"].start_s - unknown["a"].start_s == pytest.approx(later_s)


def test_work_that_a_pool_at_its_maximum_cannot_take_in_time_counts_in_the_next_best():
    pools = [
        pool("cheap", device_class="nvidia-4090", price_nanousd_per_hour=10**8, maximum=1),
        pool("dear", device_class="nvidia-4090", price_nanousd_per_hour=10**9),
    ]
    work = WorkSize(tokens_out=10_000.0, component_bytes=16_000_000_000)
    thrifty = UtilityWeights(0, 1, 0)
    alone = [action("a", LLM, weights=thrifty, work=work)]
    idle = backlog_of(snapshot([], alone, [LLM]), CostModel(), pools)
    assert (idle["cheap"].actions, idle["dear"].actions) == (1, 0)
    full = worker("w", lane(SQL, assigned=1, remaining_s=600.0), pool="cheap")
    found = backlog_of(snapshot([full], alone, [LLM, SQL]), CostModel(), pools)
    assert (found["cheap"].actions, found["dear"].actions) == (0, 1)


def test_a_pool_that_can_still_grow_takes_more_however_long_its_work_runs():
    cheap = pool("cheap", device_class="nvidia-4090", price_nanousd_per_hour=10**8, maximum=2)
    dear = pool("dear", device_class="nvidia-4090", price_nanousd_per_hour=10**9)
    pools = [replace(cheap, target_s=3_600.0), dear]
    full = worker("w", lane(SQL, assigned=1, remaining_s=3_600.0), pool="cheap")
    ready = [action("a", LLM, weights=UtilityWeights(0, 1, 0), work=WorkSize(tokens_out=9.0))]
    hasty = [asked(SQL, weights=UtilityWeights(1, 0, 0))]
    found = backlog_of(snapshot([full], ready, [LLM, SQL]), CostModel(), pools, hasty)
    assert (found["cheap"].actions, found["dear"].actions) == (1, 0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 60))
def test_every_ready_action_that_some_pool_can_run_counts_in_exactly_one(seed, actions):
    view = random_snapshot(seed, actions, 3, 5)
    pools = [pool("big", memory_mib=80_000), pool("same", memory_mib=80_000), pool("tiny")]
    found = backlog_of(view, CostModel(), pools)
    assert sum(b.actions for b in found.values()) == len(view.ready)
    assert all(b.seconds >= 0.0 for b in found.values())


def test_deadlines_raise_the_number_of_workers():
    work = WorkSize(units=100_000.0)
    ready = [action(f"a{n}x", SQL, work=work) for n in range(10)]
    pools = [pool("p")]
    calm = backlog_of(snapshot([], ready, [SQL]), CostModel(), pools)["p"]
    hurried = [structs.replace(a, deadline_s=NOW_S + 30.0) for a in ready]
    pressed = backlog_of(snapshot([], hurried, [SQL]), CostModel(), pools)["p"]
    assert calm.deadline_workers == 0
    assert pressed.deadline_workers > 1
    wanted = PoolSizer(target_s=1e6).sizes(pools[0], pressed, 0, NOW_S).workers
    assert wanted == pressed.deadline_workers
    one = [structs.replace(ready[0], deadline_s=NOW_S + 1.0)]
    too_late = backlog_of(snapshot([], one, [SQL]), CostModel(), pools)["p"]
    assert too_late.deadline_workers == 1, "more workers do not end one action sooner"


@pytest.mark.parametrize(
    ("backlog", "current", "wanted"),
    [
        (Backlog(), 0, 0),
        (Backlog(ready_s=1.0, actions=1), 0, 1),
        (Backlog(ready_s=300.0, actions=9), 1, 5),
        (Backlog(ready_s=1e9, actions=9), 1, 9),
        (Backlog(ready_s=1e9, actions=9, busy=1), 1, 10),
        (Backlog(ready_s=1e9, actions=1), 0, 1),
        (Backlog(ready_s=1e9, elsewhere=3), 0, 3),
        (Backlog(running_s=1.0, busy=4), 4, 4),
    ],
)
def test_the_number_of_workers_follows_the_seconds_of_work(backlog, current, wanted):
    assert PoolSizer(target_s=60.0).sizes(pool("p"), backlog, current, NOW_S).workers == wanted


def test_no_worker_pays_that_no_action_could_use():
    growing = pool("p", price_nanousd_per_hour=1)
    for actions in range(4):
        work = Backlog(ready_s=36_000.0, waiting_nanousd_per_hour=1e12, actions=actions, busy=1)
        assert PoolSizer(target_s=1e6).sizes(growing, work, 1, NOW_S).workers == 1 + actions


def test_work_that_runs_in_another_pool_counts_as_actions_of_its_preferred_one():
    info, shape = model_of("m", 16), {"memory_mib": 48_000, "device_class": "nvidia-4090"}
    pools = [pool("a", price_nanousd_per_hour=10**11, **shape), pool("b", **shape)]
    there = worker("w", lane(info, assigned=3, remaining_s=1.0), pool="a", **shape)
    prefers = worker("v", lane(info), pool="b", **shape)
    found = backlog_of(snapshot([there, prefers], [], [info]), CostModel(), pools, [asked(info)])
    assert (found["b"].elsewhere, found["b"].actions, found["a"].elsewhere) == (3, 0, 0)


def test_a_pool_grows_at_once_and_shrinks_only_after_its_stabilization_window():
    hysteresis = PoolSizer(target_s=60.0, stabilization_s=120.0)
    big, none = Backlog(ready_s=300.0, actions=5), Backlog()
    assert hysteresis.sizes(pool("p"), big, 0, 0.0).workers == 5
    assert hysteresis.sizes(pool("p"), none, 5, 10.0).workers == 5
    assert hysteresis.sizes(pool("p"), none, 5, 119.0).workers == 5
    assert hysteresis.sizes(pool("p"), none, 5, 121.0).workers == 0


def test_a_lowered_maximum_holds_at_once():
    sizer, busy = PoolSizer(stabilization_s=120.0), Backlog(running_s=600.0, busy=10)
    assert sizer.sizes(pool("p", maximum=10), busy, 10, 0.0).workers == 10
    assert sizer.sizes(pool("p", maximum=5), busy, 10, 1.0).workers == 5


def test_an_intermittent_load_does_not_make_the_pool_flap():
    hysteresis = PoolSizer(target_s=60.0, stabilization_s=120.0)
    current, seen = 0, []
    for second in range(0, 1000, 20):
        load = Backlog(ready_s=240.0, actions=4) if (second // 20) % 2 == 0 else Backlog()
        current = hysteresis.sizes(pool("p"), load, current, float(second)).workers
        seen.append(current)
    assert set(seen) == {4}


@given(
    st.builds(
        Backlog,
        running_s=st.floats(0, 1e6),
        ready_s=st.floats(0, 1e6),
        actions=st.integers(0, 99),
        busy=st.integers(0, 10),
        deadline_workers=st.integers(0, 99),
    ),
    st.integers(0, 10),
    st.integers(0, 3),
)
def test_the_number_stays_within_bounds_and_never_below_the_busy_workers(backlog, current, least):
    limits = pool("p", minimum=least, maximum=10)
    workers, needed = PoolSizer().sizes(limits, backlog, current, 0.0)
    assert max(least, backlog.busy) <= workers <= 10
    assert least <= needed <= workers


EVEN = UtilityWeights()


def asked(info, *, gap_s=100.0, since_s=10.0, weights=EVEN, tokens=10_000.0, per_s=0.0):
    size = sum(size for _, size in info.components)
    work = WorkSize(tokens_out=tokens, component_bytes=size)
    return SignatureDemand(info, gap_s, since_s, work, weights, per_s)


def model_of(name, gigabytes):
    size = gigabytes * 10**9
    return signature(
        name,
        memory_mib=size // 2**20 + 2048,
        capacity=8,
        components={name: size},
        work_unit="tokens",
    )


def test_engines_in_demand_require_workers_that_keep_them_loaded():
    pools = [pool("p", device_class="nvidia-4090", memory_mib=48_000)]
    three = [asked(model_of(name, 16)) for name in "abc"]
    for count, workers in ((0, 0), (1, 1), (2, 1), (3, 2)):
        found = backlog_of(snapshot([], [], []), CostModel(), pools, three[:count])["p"]
        assert found.warm == workers, count
        assert PoolSizer().sizes(pools[0], found, workers, NOW_S).workers == workers
        assert PoolSizer().sizes(pools[0], found, 0, NOW_S).workers == 0, "none is started for it"


def test_engines_that_open_steps_need_start_their_workers():
    pools = [pool("p", device_class="nvidia-4090", memory_mib=48_000)]
    warm = [asked(model_of("a", 16), since_s=0.0), asked(model_of("b", 40), since_s=10.0)]
    found = backlog_of(snapshot([], [], []), CostModel(), pools, warm)["p"]
    assert (found.warm, found.for_open_steps) == (2, 1)
    assert PoolSizer().sizes(pools[0], found, 0, NOW_S).workers == 1


def test_workers_follow_the_recent_rates_though_little_waits_just_now():
    one_pool = pool("p", memory_mib=48_000, price_nanousd_per_hour=10**9)

    def wanted(**changes):
        one = replace(asked(model_of("m", 16)), **{"gap_s": 2.0, "since_s": 1.0, **changes})
        found = backlog_of(snapshot([], [], []), CostModel(), [one_pool], [one])["p"]
        assert found.actions == 0
        return PoolSizer().sizes(one_pool, found, 0, NOW_S).workers

    assert wanted(per_s=0.0) == 0
    assert wanted(per_s=0.1, since_s=2.0) == 0, "nothing came when it should have"
    few, many = wanted(per_s=0.02), wanted(per_s=0.1)
    assert 1 <= few < many < 10
    assert wanted(per_s=0.1, waiting_runs=0.01) < many, "few runs wait for them"
    assert wanted(per_s=0.1, weights=UtilityWeights(0, 1, 0)) < many, "none minds"
    assert wanted(per_s=500.0) == 10, "no more than there may be"


def test_an_engine_is_kept_while_that_costs_less_than_to_bring_it_back_when_it_is_needed():
    dear = pool("p", memory_mib=48_000, price_nanousd_per_hour=10**10)

    def kept(**changes):
        one = replace(asked(model_of("m", 16)), **changes)
        return backlog_of(snapshot([], [], []), CostModel(), [dear], [one])["p"].warm

    # Bringing it back takes a minute.
    assert (kept(gap_s=50.0), kept(gap_s=1000.0)) == (1, 0), "used often, seldom"
    assert kept(gap_s=50.0, since_s=1000.0) == 0, "not used for a while"
    assert kept(gap_s=1000.0, waiting_runs=200.0) == 1, "many runs wait for each"
    assert kept(gap_s=50.0, waiting_runs=200.0, weights=UtilityWeights(0, 1, 0)) == 1
    assert kept(gap_s=1000.0, waiting_runs=200.0, weights=UtilityWeights(0, 1, 0)) == 0, (
        "none minds"
    )


def test_an_engine_keeps_its_worker_no_longer_than_the_pool_says():
    hurried = replace(pool("p", memory_mib=48_000), keep_most_s=30.0)
    for since_s, workers in ((0.0, 1), (30.0, 1), (31.0, 0)):
        one = asked(model_of("m", 16), since_s=since_s)
        found = backlog_of(snapshot([], [], []), CostModel(), [hurried], [one])["p"]
        assert found.warm == workers


def test_a_pool_without_a_price_does_not_keep_its_workers_for_ever():
    free = pool("p", memory_mib=48_000, price_nanousd_per_hour=0)
    for since_s, workers in ((0.0, 1), (3000.0, 0)):
        one = asked(model_of("m", 4), gap_s=50.0, since_s=since_s)
        found = backlog_of(snapshot([], [], []), CostModel(), [free], [one])["p"]
        assert found.warm == workers


def test_a_pool_without_a_price_grows_as_one_of_a_dollar_an_hour():
    one = replace(asked(model_of("m", 16)), gap_s=2.0, since_s=1.0, per_s=0.05)
    found = [
        backlog_of(snapshot([], [], []), CostModel(), [free_or_not], [one])["p"].steady
        for free_or_not in (
            pool("p", memory_mib=48_000, maximum=50, price_nanousd_per_hour=price)
            for price in (0, 10**9)
        )
    ]
    assert found[0] == found[1] < 50
    work = Backlog(ready_s=3_600.0, waiting_nanousd_per_hour=2e9)
    free, dollar = (pool("p", maximum=50, price_nanousd_per_hour=price) for price in (0, 10**9))
    assert work.workers_that_pay(free, 50) == work.workers_that_pay(dollar, 50) < 50


def test_a_worker_is_kept_for_the_sum_of_its_engines():
    dear = pool("p", memory_mib=48_000, price_nanousd_per_hour=3 * 10**9)
    each = [asked(model_of(name, 4), gap_s=200.0) for name in "abcd"]
    kept = [
        backlog_of(snapshot([], [], []), CostModel(), [dear], each[:n])["p"].warm for n in range(5)
    ]
    assert kept[1] == 0
    assert kept[4] == 1


def test_a_pool_without_a_practical_bound_takes_no_longer_to_size():
    endless = pool("p", device_class="nvidia-4090", memory_mib=48_000, maximum=10**9)
    work = Backlog(ready_s=1e15, waiting_nanousd_per_hour=1e30)
    assert work.workers_that_pay(endless, endless.most) > 10**6
    found = backlog_of(snapshot([], [], []), CostModel(), [endless], [asked(model_of("m", 16))])
    assert found["p"].warm == 1


@pytest.mark.parametrize(
    ("alpha", "beta", "factor"),
    [(1, 1, 1.0), (0.25, 1, 0.25), (1, 0.1, 10.0), (1e9, 1e-9, 10.0), (1, 0, 10.0), (0, 0, 0.0)],
)
def test_no_weights_make_the_time_of_a_run_worth_more_than_those_for_latency(alpha, beta, factor):
    found = value_of_time(UtilityWeights(alpha, beta, 0))
    assert found == pytest.approx(factor * VALUE_OF_TIME_NANOUSD_PER_HOUR)


def test_workers_are_added_while_they_save_more_waiting_than_they_cost():
    growing = pool("p", price_nanousd_per_hour=10**9, start_s=60.0)
    work = Backlog(ready_s=3_600.0, waiting_nanousd_per_hour=2e9)
    paying = [
        replace(work, waiting_nanousd_per_hour=value).workers_that_pay(growing, 10)
        for value in (0.0, 1e9, 1e10)
    ]
    assert paying[0] == 1
    assert paying == sorted(set(paying)), "the more is waited for, the more workers"
    assert replace(work, ready_s=59.0).workers_that_pay(growing, 10) == 1, "it is done sooner"
    assert Backlog().workers_that_pay(growing, 10) == 0
    assert work.workers_that_pay(growing, 0) == 0
    assert replace(work, waiting_nanousd_per_hour=1e12).workers_that_pay(growing, 3) == 3


def test_workers_first_keep_up_with_what_arrives():
    growing = pool("p", price_nanousd_per_hour=10**9, start_s=10.0)
    work = Backlog(ready_s=100.0, waiting_nanousd_per_hour=1e9)
    found = [
        replace(work, arriving=arriving).workers_that_pay(growing, 20)
        for arriving in (0.0, 0.5, 2.0, 2.9, 7.5, 50.0)
    ]
    assert found == [1, 2, 3, 4, 9, 20]
    assert Backlog(arriving=5.0).workers_that_pay(growing, 20) == 0, "nothing waits"


def test_a_rarely_used_engine_is_kept_loaded_where_memory_is_cheap():
    fast = {"device_class": "nvidia-h100", "memory_mib": 80_000}
    roomy = {"device_class": "nvidia-4090", "memory_mib": 48_000}
    pools = [
        pool("compute", **fast, price_nanousd_per_hour=5 * 10**8),
        pool("memory", **roomy, price_nanousd_per_hour=2 * 10**8),
    ]
    for gap_s, home in ((1.0, "compute"), (1e6, "memory")):
        one = asked(model_of("m", 16), gap_s=gap_s, weights=UtilityWeights(0, 1, 0), tokens=1e6)
        found = signal_of(snapshot([], [], []), CostModel(), pools, [one])
        assert set(found.preferred.values()) == {home}


def test_engines_beyond_the_capacity_of_a_pool_at_its_maximum_prefer_the_next_pool():
    pools = [
        pool("small", device_class="nvidia-4090", memory_mib=24_000, maximum=1),
        pool("large", device_class="nvidia-4090", memory_mib=24_000, price_nanousd_per_hour=10**10),
    ]
    thrifty = [
        asked(model_of(name, 16), gap_s=30.0, weights=UtilityWeights(0, 1, 0)) for name in "ab"
    ]
    found = backlog_of(snapshot([], [], []), CostModel(), pools, thrifty)
    assert (found["small"].warm, found["large"].warm) == (1, 1)


def test_work_outside_its_preferred_pool_counts_in_the_preferred_pool_unless_it_runs_long():
    pools = [
        pool("dear", device_class="nvidia-h100", memory_mib=80_000, price_nanousd_per_hour=10**11),
        pool("home", device_class="nvidia-4090", memory_mib=48_000, price_nanousd_per_hour=10**8),
    ]
    info, larger = model_of("m", 16), model_of("larger", 17)
    demand = [asked(info), asked(larger)]
    for remaining_s, wanted in ((20.0, 0), (301.0, 1)):
        there = worker("w", lane(info, assigned=2, remaining_s=remaining_s), pool="dear")
        most = worker("v", lane(larger), pool="home")
        found = backlog_of(snapshot([there, most], [], []), CostModel(), pools, demand)
        assert found["dear"].busy == 1
        assert (found["home"].ready_s > 0.0) is (wanted == 0)
        sizes = PoolSizer(target_s=60.0).sizes(pools[0], found["dear"], 1, NOW_S)
        assert sizes == (max(1, wanted), wanted)


def test_a_loaded_engine_keeps_its_preferred_pool_against_a_slightly_better_one():
    pools = [pool("a"), pool("b")]
    warm = [asked(LLM, per_s=0.01)]
    assert backlog_of(snapshot([], [], []), CostModel(), pools, warm)["a"].warm == 1
    hot = worker("w", lane(LLM), pool="b")
    assert backlog_of(snapshot([hot], [], []), CostModel(), pools, warm)["b"].warm == 1


def test_a_long_action_requires_no_further_worker():
    training = worker("w", lane(LLM, assigned=1, remaining_s=3_600.0), pool="gpu")
    growing = pool("gpu", maximum=10)
    alone = backlog_of(snapshot([training], [], []), CostModel(), [growing])["gpu"]
    assert (alone.running_s, alone.busy) == (growing.target_s, 1)
    assert PoolSizer(target_s=60.0).sizes(growing, alone, 1, NOW_S) == (1, 1)


def test_work_counts_in_a_reserved_pool_only_where_that_admits_it():
    pools = [pool("ours", memory_mib=40_000), pool("dear", memory_mib=40_000)]
    ready = [
        action("a", LLM, reserved_pools=frozenset({"ours"})),
        *(action(f"b{n}", LLM) for n in range(3)),
    ]
    view = replace(snapshot([], ready, [LLM]), reserved_pools=frozenset({"ours"}))
    found = backlog_of(view, CostModel(), pools[:1])
    assert found["ours"].actions == 1
    found = backlog_of(view, CostModel(), pools)
    assert found["dear"].actions >= 3
    assert found["ours"].actions + found["dear"].actions == 4


def size_with(ready, uses, workers=(), **limits):
    """The workers that a pool gets for these actions beside what namespaces use."""
    view = replace(snapshot(list(workers), ready, [SQL]), worker_uses=uses)
    pools = [pool("pool", **{"maximum": 1000, **limits})]
    found = backlog_of(view, CostModel(), pools)["pool"]
    return PoolSizer(target_s=60.0).sizes(pools[0], found, len(workers), NOW_S).workers


def many(tenant, *bounded):
    work = WorkSize(units=1e5)
    names = (f"{tenant}{n}x" for n in range(50))
    return [action(n, SQL, work=work, bounded_tenants=frozenset(bounded)) for n in names]


def test_a_namespace_of_few_workers_makes_a_pool_no_larger_than_it_may_use():
    most = {"a": WorkerUse(frozenset(), 2), "b": WorkerUse(frozenset(), 3)}
    alone = size_with(many("c"), {})
    assert 5 < alone < 900
    assert size_with(many("a", "a"), most) == 2
    assert size_with([*many("a", "a"), *many("b", "b")], most) == 5
    assert size_with([*many("a", "a"), *many("c")], most) == alone + 2
    assert size_with(many("a", "a", "b"), most) == alone, "it counts for none of them"


def test_the_recent_rates_make_a_pool_no_larger_for_a_namespace_of_few_workers():
    bounded = Backlog(ready_s=1e5, actions=50, steady=8, unbounded=Backlog(), bounded={"a": 2})
    assert PoolSizer().sizes(pool("p"), bounded, 0, NOW_S).workers == 2


def test_a_pool_grows_until_a_namespace_uses_all_the_workers_that_it_may():
    for count in (1, 2, 3):
        names = [f"w{n}" for n in range(count)]
        workers = [worker(n, lane(SQL, assigned=1, remaining_s=10.0)) for n in names]
        uses = {"a": WorkerUse(frozenset(names), 4)}
        assert size_with(many("a", "a"), uses, workers) == 4


def test_work_of_a_namespace_that_uses_all_its_workers_requires_none():
    at = worker("w", lane(SQL, assigned=1, remaining_s=40.0))
    used = {"a": WorkerUse(frozenset({"w"}), 1)}
    assert size_with(many("a", "a"), used, [at]) == 1
    assert size_with(many("a", "a"), {"a": WorkerUse(frozenset({"w"}), 3)}, [at]) == 3


def sizes_of_two(uses, workers=(), on_gpu=1e5, **limits):
    """The workers that two pools get, of which each alone can run some work of namespace a."""
    kinds = {"cpu": "cpu", "gpu": "nvidia-4090"}
    infos = [signature(n, engine="data.sql", gpu_product=(k,)) for n, k in kinds.items()]
    ready = [
        action(f"{info.signature}{n}x", info, work=WorkSize(units=units), bounded_tenants=BY_A)
        for info, units in zip(infos, (1e5, on_gpu), strict=True)
        for n in range(50)
    ]
    view = replace(snapshot(list(workers), ready, infos), worker_uses=uses)
    pools = [pool(n, device_class=k, maximum=limits.get(n, 1000)) for n, k in kinds.items()]
    found = backlog_of(view, CostModel(), pools)
    here = {p.name: sum(w.shape.pool == p.name for w in workers) for p in pools}
    return [
        PoolSizer(target_s=60.0).sizes(p, found[p.name], here[p.name], NOW_S).workers for p in pools
    ]


BY_A = frozenset({"a"})


@pytest.mark.parametrize("most", [1, 2, 3, 7, 50])
def test_pools_grow_together_by_no_more_workers_than_a_namespace_may_use(most):
    assert sum(sizes_of_two({"a": WorkerUse(frozenset(), most)})) == most


def test_the_workers_that_a_namespace_uses_in_one_pool_leave_fewer_for_the_other():
    at = worker("w", lane(SQL, assigned=1, remaining_s=10.0), pool="cpu", device_class="cpu")
    for most in (1, 2, 5):
        assert sum(sizes_of_two({"a": WorkerUse(frozenset({"w"}), most)}, [at])) == most


def test_a_pool_that_cannot_grow_leaves_its_part_to_another_and_the_most_work_comes_first():
    most = {"a": WorkerUse(frozenset(), 6)}
    assert sizes_of_two(most, cpu=1) == [1, 5]
    assert sizes_of_two(most, cpu=1, gpu=2) == [1, 2]
    assert sizes_of_two({"a": WorkerUse(frozenset(), 1)}, on_gpu=9e5) == [0, 1]


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.floats(0.0, 1e6), st.integers(0, 20)), min_size=1, max_size=5),
)
def test_the_parts_of_a_bound_fill_it_or_every_pool(free, pools):
    ready_s = {str(n): seconds for n, (seconds, _) in enumerate(pools)}
    room = {str(n): workers for n, (_, workers) in enumerate(pools)}
    parts = split_workers(free, ready_s, room)
    assert parts.keys() == room.keys()
    assert all(0 <= parts[pool] <= room[pool] for pool in room)
    assert sum(parts.values()) == min(free, sum(room.values()))


def other_kind(priority=0, ready_s=NOW_S - 60.0):
    """The sizes of two pools for a namespace at its bound that has work for both."""
    version = EngineVersion(1, 1)
    shapes = {"sql": {"data.sql": version}, "llm": {"llm.generate": version}}
    at = worker("w", lane(SQL, assigned=1, remaining_s=40.0), pool="sql", engines=shapes["sql"])
    stream = [structs.replace(one, ready_s=NOW_S - 30.0) for one in many("a", "a")]
    names = (f"l{n}x" for n in range(50))
    needs = [action(n, LLM, bounded_tenants=frozenset("a"), priority=priority) for n in names]
    needs = [structs.replace(one, ready_s=ready_s) for one in needs]
    view = replace(
        snapshot([at], [*stream, *needs], [SQL, LLM]),
        worker_uses={"a": WorkerUse(frozenset({"w"}), 1)},
    )
    pools = [pool(name, engines=engines) for name, engines in shapes.items()]
    found = backlog_of(view, CostModel(), pools)
    return [
        PoolSizer().sizes(p, found[p.name], n, NOW_S).workers
        for p, n in zip(pools, (1, 0), strict=True)
    ]


def test_a_namespace_at_its_bound_gets_a_worker_of_another_kind_for_what_comes_first():
    assert other_kind() == [1, 1]
    assert other_kind(ready_s=NOW_S - 10.0) == [1, 0], "the work for the worker in use is older"
    assert other_kind(ready_s=NOW_S - 10.0, priority=1) == [1, 1]
    assert other_kind(priority=-1) == [1, 0]


def test_a_namespace_without_any_worker_requires_none():
    assert size_with(many("a", "a"), {"a": WorkerUse(frozenset(), 0)}) == 0


def test_work_that_runs_in_a_reserved_pool_counts_in_that_pool():
    at = worker("w", lane(SQL, assigned=1, remaining_s=40.0), pool="ours")
    view = replace(snapshot([at], [], [SQL]), reserved_pools=frozenset({"ours"}))
    found = backlog_of(view, CostModel(), [pool("ours"), pool("pool", minimum=1)])
    assert (found["ours"].running_s, found["ours"].busy) == (40.0, 1)
    assert found["pool"] == Backlog()


@pytest.mark.parametrize(("reserved_mib", "occupied"), [(79_700, 2), (40_000, 0)])
def test_workers_that_replicas_fill_do_not_count_for_what_waits(reserved_mib, occupied):
    serving = [
        replace(worker(name, memory_mib=80_000), replicas=1, replica_memory_mib=reserved_mib)
        for name in ("w1", "w2")
    ]
    waiting = snapshot(serving, [action("a", SQL)], [SQL])
    found = signal_of(waiting, CostModel(), [pool("pool")], serving={"pool": 2}).backlogs["pool"]
    assert found.occupied == occupied
    size = PoolSizer().sizes(pool("pool"), found, 2, NOW_S)
    assert size.workers == (3 if occupied else 2), "the batch gets a worker beside the services"


def test_an_engine_that_is_loaded_for_a_service_takes_the_batch_too():
    shared = replace(
        worker("w1", lane(LLM), memory_mib=20_000), replicas=1, replica_memory_mib=20_000
    )
    waiting = snapshot([shared], [action("a", LLM)], [LLM])
    assert signal_of(waiting, CostModel(), [pool("pool")]).backlogs["pool"].occupied == 0
