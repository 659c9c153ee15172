"""Workers of other pools, where the preferred pool is at its maximum and cannot keep up."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.autoscaling.test_preferred_pools import asked, idle, model, pool
from tests.flowmesh_core.placement.builders import action, digest, lane, snapshot, worker

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.objective import arriving, value_of_time
from flowmesh_core.autoscaling.overflow import overflow_workers
from flowmesh_core.autoscaling.pool_model import TemplateWorker
from flowmesh_core.autoscaling.prewarm_plan import prewarm_plan
from flowmesh_core.costmodel import CostModel, Rate
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.worker_bounds import WorkerUse

M, N = model("m"), model("n")
FULL = pool("full", "nvidia-h100", 80_000, 2.0, maximum=2)
NEAR = pool("near", "nvidia-h100", 80_000, 2.0, maximum=4)
SLOW = pool("slow", "nvidia-4090", 24_000, 0.4, maximum=4)


def demand(info=M, per_s: float = 1.0):
    return replace(asked(info, gap_s=5.0), since_s=1.0, per_s=per_s)


def template(of, seconds: float) -> TemplateWorker:
    """An idle worker on which each action takes so many seconds of the whole worker."""
    rate = Rate(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, tokens=False)
    return TemplateWorker(of, rate, rate, 10.0, 0.0, 0.0, 0.0, 0, 0)


def overflow(*others, delayed=1e11, work_s=100.0, per_s=1.0, infos=(M,)):
    """``others``: a pool and the seconds of an action there, where one takes 2 in the full pool."""
    able = {t.pool.name: t for t in [template(FULL, 2.0), *(template(*o) for o in others)]}
    engines = [(demand(info, per_s), able["full"]) for info in infos]
    able_of = {info.signature: able for info in infos}
    return overflow_workers(FULL, engines, able_of, work_s, delayed)


def test_workers_of_another_pool_are_added_while_they_save_more_waiting_than_they_cost():
    def cost(workers: int, delayed: float) -> float:
        return 2e9 * workers + delayed * 2 / (2 + workers)

    for delayed in (0.0, 1e9, 5e9, 2e10, 4e10, 1e12):
        best = min(range(5), key=lambda n: cost(n, delayed))
        assert overflow((NEAR, 2.0), delayed=delayed).get("near", 0) == best


def test_the_pool_with_the_lowest_price_for_its_speed_comes_first():
    even = overflow((NEAR, 2.0), (SLOW, 4.0), delayed=1.5e10)
    assert even == {"slow": 4}, "0.4 dollars at half the speed, before 2 at the same"
    assert overflow((NEAR, 2.0), (SLOW, 40.0), delayed=1.5e10) == {"near": 2}
    assert overflow((NEAR, 2.0), (SLOW, 4.0), delayed=1e12) == {"slow": 4, "near": 4}


def test_a_pool_that_runs_some_of_the_engines_counts_for_less():
    able = {info.signature: {"full": template(FULL, 2.0)} for info in (M, N)}
    engines = [(demand(info), able[info.signature]["full"]) for info in (M, N)]
    for info in (M, N):
        able[info.signature]["near"] = template(NEAR, 2.0)
    both = overflow_workers(FULL, engines, able, 100.0, 1.4e10)
    del able[N.signature]["near"]
    one = overflow_workers(FULL, engines, able, 100.0, 1.4e10)
    assert both == {"near": 2}
    assert one == {"near": 1}


def test_a_worker_that_would_come_after_the_work_is_done_is_not_started():
    late = replace(NEAR, start_s=120.0)
    assert overflow((late, 2.0), per_s=0.25, work_s=100.0) == {}, "1.5 workers are free to do it"
    assert overflow((late, 2.0), per_s=0.25, work_s=400.0)
    assert overflow((late, 2.0), per_s=1.0, work_s=100.0), "new work arrives as fast as it is done"


def test_work_that_arrives_counts_in_worker_seconds():
    assert arriving([]) == 0.0
    engines = [(demand(per_s=0.5), template(FULL, 3.0)), (demand(N, 0.1), template(FULL, 20.0))]
    assert arriving(engines) == pytest.approx(3.5)


# -- in the capacity signal ----------------------------------------------------------------------


def fleet(assigned: int, remaining_s: float = 100.0):
    running = lane(M, assigned=assigned, remaining_s=remaining_s)
    like = {"pool": "full", "device_class": "nvidia-h100", "memory_mib": 80_000}
    return [worker(f"full-{n}", running, **like) for n in range(2)]


def signal(workers, ready=(), warm=None, uses=None, pools=(FULL, SLOW)):
    seen = snapshot(list(workers), list(ready), [M, N])
    if uses:
        seen = replace(seen, worker_uses=uses)
    return signal_of(seen, CostModel(), pools, [demand()] if warm is None else warm)


def test_actions_that_share_a_full_pool_start_workers_of_another():
    found = signal(fleet(8))
    assert found.preferred == {M.signature: "full"}
    assert found.backlogs["slow"].steady == 4
    assert found.overflow == {M.signature: {"slow"}}


def test_actions_that_have_a_worker_each_start_none_elsewhere():
    found = signal(fleet(1))
    assert found.backlogs["full"].delayed_nanousd_per_hour == 0.0
    assert found.backlogs["slow"].steady == 0
    assert not found.overflow.get(M.signature)


def test_ready_actions_wait_for_each_other_too():
    work = WorkSize(tokens_out=10_000.0, component_bytes=16 * 10**9)
    ready = [action(f"a{n}", M, work=work) for n in range(40)]
    found = signal(fleet(0), ready, warm=[demand(per_s=0.01)])
    assert found.backlogs["full"].actions == 40
    assert found.backlogs["slow"].steady


def test_a_pool_below_its_maximum_grows_by_itself():
    larger = replace(FULL, maximum=100)
    found = signal(fleet(8), pools=(larger, SLOW))
    assert found.backlogs["slow"].steady == 0
    assert not found.overflow


def test_no_workers_are_added_for_work_that_has_stopped_arriving():
    stopped = replace(demand(), since_s=500.0)
    assert signal(fleet(8), warm=[stopped]).backlogs["slow"].steady == 0


def test_a_namespace_at_its_limit_on_workers_starts_none_elsewhere():
    workers = fleet(8)
    used = frozenset(w.name for w in workers)
    at_limit = {"team": WorkerUse(used, 2)}
    below = {"team": WorkerUse(used, 3)}
    assert signal(workers, uses=at_limit).backlogs["slow"].steady == 0
    assert signal(workers, uses=below).backlogs["slow"].steady


def test_ready_actions_of_a_namespace_with_a_limit_start_none_elsewhere():
    work = WorkSize(tokens_out=10_000.0, component_bytes=16 * 10**9)
    ready = [action(f"a{n}", M, bounded_tenants=frozenset({"team"}), work=work) for n in range(40)]
    below = {"team": WorkerUse(frozenset(), 5)}
    found = signal(fleet(0), ready, warm=[demand(per_s=0.01)], uses=below)
    assert found.backlogs["full"].actions == 40
    assert found.backlogs["slow"].steady == 0


def test_a_pool_that_can_have_as_many_workers_as_would_pay_is_not_full():
    sizes: dict[int, set[bool]] = {}
    for price in range(2, 400, 4):
        full = pool("full", "nvidia-h100", 80_000, price, maximum=2)
        found = signal(fleet(2), warm=[demand(per_s=0.01)], pools=(full, SLOW))
        pays = found.backlogs["full"].workers_that_pay(full, 3)
        sizes.setdefault(pays, set()).add(bool(found.overflow.get(M.signature)))
    assert sizes[2] == {False}
    assert True in sizes[3]


def test_workers_for_a_full_pool_are_added_to_those_of_the_pool_itself():
    small = pool("full", "nvidia-h100", 20_000, 2.0, maximum=1)
    wide = replace(SLOW, maximum=50)

    def steady(assigned: int, *warm) -> int:
        running = lane(M, assigned=assigned, remaining_s=100.0)
        like = {"pool": "full", "device_class": "nvidia-h100", "memory_mib": 20_000}
        found = signal([worker("w", running, **like)], warm=warm, pools=(small, wide))
        assert {M.signature: "full", N.signature: "slow"}.items() >= found.preferred.items()
        return found.backlogs["slow"].steady

    helping, own = steady(8, demand()), steady(1, demand(), demand(N, 0.4))
    assert min(helping, own) > 0
    assert steady(8, demand(), demand(N, 0.4)) == helping + own


def test_actions_that_share_a_worker_of_another_pool_count_for_the_full_one():
    found = signal(fleet(1)).backlogs["full"].delayed_nanousd_per_hour
    assert found == 0.0
    sharing = lane(M, assigned=8, remaining_s=1.0)
    elsewhere = worker("slow-0", sharing, pool="slow", memory_mib=24_000)
    found = signal([*fleet(1), elsewhere]).backlogs["full"].delayed_nanousd_per_hour
    assert found == pytest.approx(7 * value_of_time(demand().weights))


def test_an_engine_that_no_other_pool_can_run_overflows_nowhere():
    large = model("n", 40)
    found = signal(fleet(8), warm=[demand(), demand(large, 0.5)])
    assert found.overflow[M.signature] == {"slow"}
    assert not found.overflow[large.signature]


def test_idle_workers_of_overflow_pools_load_instances():
    info, home = M, {digest("m"): "h100"}
    shared = worker("a", lane(info, assigned=4), pool="h100", memory_mib=80_000)
    other = worker("x", pool="slow", memory_mib=24_000)
    warm = [asked(info)]
    assert "x" not in prewarm_plan([shared, other], warm, home)
    plan = prewarm_plan([shared, other], warm, home, {info.signature: {"slow"}})
    assert plan["x"] == (info.signature,)
    plan = prewarm_plan([shared, other], warm, home, {N.signature: {"slow"}})
    assert "x" not in plan
    assert "b" in prewarm_plan([shared, idle("b"), other], warm, home, {info.signature: {"slow"}})
