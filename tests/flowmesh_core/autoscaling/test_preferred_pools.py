"""Which pool and which worker an engine in demand is open on."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.placement.builders import action, digest, lane, signature, snapshot, worker

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView
from flowmesh_core.autoscaling.prewarm_plan import prewarm_plan
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights

FAST, CHEAP = UtilityWeights(1, 0, 0), UtilityWeights(0, 1, 0)
GB = 10**9


def pool(name: str, kind: str, memory_mib: int, usd_per_hour: float, maximum: int = 4) -> PoolView:
    price = round(usd_per_hour * GB)
    like = worker(
        name, pool=name, device_class=kind, memory_mib=memory_mib, price_nanousd_per_hour=price
    )
    return PoolView(name, like.shape, maximum=maximum)


H100, RTX = pool("h100", "nvidia-h100", 80_000, 2.0), pool("rtx", "nvidia-4090", 24_000, 0.4)


def model(name: str, gigabytes: int = 16):
    size = gigabytes * GB
    return signature(
        name,
        memory_mib=size // 2**20 + 2048,
        capacity=8,
        components={name: size},
        work_unit="tokens",
    )


def asked(
    info, weights: UtilityWeights = FAST, *, gap_s: float = 60.0, per_s: float = 0.0
) -> SignatureDemand:
    work = WorkSize(tokens_out=10_000.0, component_bytes=16 * GB)
    return SignatureDemand(info, gap_s, 0.0, work, weights, per_s)


def homes(warm, *workers, pools=(H100, RTX), ready=(), infos=()):
    found = signal_of(snapshot(list(workers), list(ready), list(infos)), CostModel(), pools, warm)
    return {s.rstrip("0"): p for s, p in found.preferred.items()}, found


@pytest.mark.parametrize(("weights", "home"), [(FAST, "h100"), (CHEAP, "rtx")])
def test_the_utility_weights_decide_the_preferred_pool_of_an_engine(weights, home):
    assert homes([asked(model("m"), weights)])[0] == {"m": home}


def test_engines_share_one_preferred_pool_and_the_most_requested_one_decides():
    often, seldom = asked(model("x"), FAST, gap_s=5.0), asked(model("y"), CHEAP, gap_s=50.0)
    assert homes([often, seldom])[0] == {"x": "h100", "y": "h100"}
    often, seldom = asked(model("x"), FAST, gap_s=50.0), asked(model("y"), CHEAP, gap_s=5.0)
    assert homes([often, seldom])[0] == {"x": "rtx", "y": "rtx"}


def test_a_pool_whose_engines_get_half_of_the_actions_stays_preferred():
    """However little memory these engines need: a large one may be that of a single run."""
    small, large = model("x", 4), model("y")
    hot = worker("w", lane(small), pool="rtx", memory_mib=24_000)
    for per_s, home in ((0.05, "rtx"), (0.1, "rtx"), (0.11, "h100")):
        warm = [asked(small, per_s=0.1), asked(large, per_s=per_s)]
        assert homes(warm, hot)[0] == {"x": home, "y": home}


def test_an_engine_that_a_pool_has_no_memory_for_goes_to_the_next_pool():
    small = pool("h100", "nvidia-h100", 20_000, 2.0, maximum=1)
    found, _ = homes([asked(model("x")), asked(model("y"))], pools=(small, RTX))
    assert found == {"x": "h100", "y": "rtx"}


def test_a_loading_engine_requires_no_second_worker():
    info = model("m")
    opening = lane(info, assigned=1, remaining_s=200.0, load_remaining_s=190.0)
    loading = worker("w", opening, pool="h100", memory_mib=80_000)
    _, found = homes([asked(info)], loading)
    assert found.backlogs["h100"].seconds == pytest.approx(10.0)


def test_work_without_a_model_runs_where_engines_are_kept_loaded():
    sql = signature("sql", engine="data.sql")
    alone = homes([], ready=[action("a", sql)], infos=[sql])[1].backlogs
    assert [name for name, b in alone.items() if b.actions] == ["rtx"]
    beside = homes([asked(model("m"))], ready=[action("a", sql)], infos=[sql])[1].backlogs
    assert [name for name, b in beside.items() if b.actions] == ["h100"]


def test_every_engine_is_prewarmed_on_one_worker_of_its_preferred_pool_with_free_memory():
    one, other = model("x"), model("y")
    warm = [asked(one, gap_s=9.0), asked(other, gap_s=5.0)]
    home = {digest("x"): "rtx", digest("y"): "rtx"}
    a, b = (worker(n, pool="rtx", memory_mib=24_000) for n in "ab")
    assert prewarm_plan([a], warm, home) == {"a": (digest("y"),)}, "the more frequent one"
    assert prewarm_plan([a, b], warm, home) == {"b": (digest("y"),), "a": (digest("x"),)}
    has = worker("a", lane(other), pool="rtx", memory_mib=24_000)
    assert prewarm_plan([has, b], warm, home) == {"a": (digest("y"),), "b": (digest("x"),)}


def test_memory_that_replicas_of_services_reserve_is_not_free_for_engines():
    info, home = model("m"), {digest("m"): "h100"}
    full = replace(idle("z"), replicas=1, replica_memory_mib=79_000)
    assert prewarm_plan([idle("a"), full], [asked(info)], home).keys() == {"a"}
    assert prewarm_plan([full], [asked(info)], home) == {}
    serves = replace(full, instances=idle("z", lane(info, pinned=True)).instances)
    assert prewarm_plan([idle("a"), serves], [asked(info)], home) == {}, "a service has it loaded"


def shared(info, assigned: int, name: str = "a"):
    return worker(name, lane(info, assigned=assigned), pool="h100", memory_mib=80_000)


def idle(name: str, *lanes, **more):
    return worker(name, *lanes, **{"pool": "h100", "memory_mib": 80_000, **more})


def test_idle_workers_load_instances_of_a_shared_engine_up_to_one_for_each_action():
    info = model("m")
    plan = prewarm_plan(
        [shared(info, 3), idle("b"), idle("c"), idle("d")], [asked(info)], {digest("m"): "h100"}
    )
    assert plan == {"a": (digest("m"),), "b": (digest("m"),), "c": (digest("m"),)}
    loading = idle("b", lane(info, assigned=0, load_remaining_s=20.0))
    plan = prewarm_plan(
        [shared(info, 3), loading, idle("c"), idle("d")], [asked(info)], {digest("m"): "h100"}
    )
    assert "c" in plan
    assert "d" not in plan, "the one that loads is the second action's"


def test_idle_workers_load_instances_for_the_steps_that_will_need_one():
    info = model("m")
    workers = [shared(info, 1), idle("b"), idle("c"), idle("d")]
    warm, home = replace(asked(info), foreseen=2), {digest("m"): "h100"}
    assert prewarm_plan(workers, [warm], home).keys() == {"a", "b", "c"}
    free = [idle("a", lane(info, assigned=0)), *workers[1:]]
    assert prewarm_plan(free, [warm], home).keys() == {"a", "b"}, "one step has an instance"
    assert prewarm_plan(workers, [warm], {}) == {}, "of an engine without a pool none is loaded"


def test_an_engine_that_one_action_uses_is_loaded_once():
    info = model("m")
    plan = prewarm_plan([shared(info, 1), idle("b")], [asked(info)], {digest("m"): "h100"})
    assert plan == {"a": (digest("m"),)}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"draining": True}, id="draining"),
        pytest.param({"pool": "rtx"}, id="another pool"),
        pytest.param({"memory_mib": 10_000}, id="too small"),
    ],
)
def test_a_further_instance_is_only_loaded_where_it_could_take_work(other):
    info = model("m")
    plan = prewarm_plan([shared(info, 3), idle("b", **other)], [asked(info)], {digest("m"): "h100"})
    assert plan == {"a": (digest("m"),)}


def test_a_worker_with_replicas_of_services_loads_no_further_instance():
    info = model("m")
    serves = replace(idle("b"), replicas=1)
    plan = prewarm_plan([shared(info, 3), serves], [asked(info)], {digest("m"): "h100"})
    assert plan == {"a": (digest("m"),)}


def test_a_worker_that_works_loads_no_further_instance():
    info, another = model("m"), model("n")
    busy = idle("b", lane(another, assigned=1))
    warm, home = [asked(info), asked(another)], {digest("m"): "h100", digest("n"): "h100"}
    assert prewarm_plan([shared(info, 3), busy], warm, home)["b"] == (digest("n"),)


def test_a_further_instance_takes_no_memory_of_an_open_engine_in_demand():
    info, another = model("m", 40), model("n", 40)
    has = [idle(name, lane(another, assigned=0)) for name in "bc"]
    warm, home = [asked(info), asked(another)], {digest("m"): "h100", digest("n"): "h100"}
    plan = prewarm_plan([shared(info, 3), *has, idle("d")], warm, home)
    assert plan == {"a": (digest("m"),), "c": (digest("n"),), "d": (digest("m"),)}


def test_a_list_of_further_instances_stays_when_another_engine_is_shared_more():
    one, other = model("m", 40), model("n", 40)
    warm, home = [asked(one), asked(other)], {digest("m"): "h100", digest("n"): "h100"}

    def further(of_one: int, of_other: int):
        workers = [shared(one, of_one), shared(other, of_other, "b"), idle("c"), idle("d")]
        plan = prewarm_plan(workers, warm, home)
        return plan["c"], plan["d"]

    assert further(5, 3) == further(3, 5) == ((digest("m"),), (digest("m"),))


def test_draining_workers_and_workers_of_other_pools_prewarm_no_engine():
    warm, home = [asked(model("x"))], {digest("x"): "rtx"}
    leaving = worker("a", pool="rtx", memory_mib=24_000, draining=True)
    elsewhere = worker("b", pool="h100", memory_mib=80_000)
    assert prewarm_plan([leaving, elsewhere], warm, home) == {}


def test_a_further_worker_is_kept_for_half_as_much_again_as_its_engines_save():
    """Without it they would take the memory of others, which must then be brought back too."""
    two_fit, price = pool("rtx", "nvidia-4090", 40_000, 1.0), GB
    packing = MemoryPacking(two_fit)
    for mib, worth in ((20_000, price), (20_000, 0.0), (20_000, 0.7 * price)):
        packing.take(mib, worth)
    assert (packing.workers, packing.retained) == (2, 2)
    assert packing.worth == [price, pytest.approx(1.05 * price)]
    packing = MemoryPacking(two_fit)
    packing.take(20_000, 0.7 * price)
    assert packing.retained == 0, "the first worker's engines displace none"


def test_what_fits_no_worker_that_a_pool_may_have_is_left_out():
    packing = MemoryPacking(pool("rtx", "nvidia-4090", 40_000, 1.0, maximum=1))
    packing.take(30_000, 1.0)
    packing.take(20_000, 1.0, needed=True)
    assert (packing.worth, packing.needed) == ([1.0], [False])
