"""Workers of other pools, where the preferred pool is at its maximum and cannot keep up."""

from dataclasses import replace

import pytest
from tests.flowmesh_core.autoscaling.test_preferred_pools import asked, idle, model, pool
from tests.flowmesh_core.placement.builders import NOW_S, action, digest, lane, snapshot, worker

from flowmesh_core.autoscaling.backlog import Backlog, signal_of
from flowmesh_core.autoscaling.objective import arriving
from flowmesh_core.autoscaling.overflow import HelpingPool, UnfinishedWork, overflow_workers
from flowmesh_core.autoscaling.pool_model import TemplateWorker
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.prewarm_plan import prewarm_plan
from flowmesh_core.costmodel import CostModel, Rate
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.worker_bounds import WorkerUse

M, N = model("m"), model("n")
FULL = pool("full", "nvidia-h100", 80_000, 2.0, maximum=2)
NEAR = pool("near", "nvidia-h100", 80_000, 2.0, maximum=4)
SLOW = pool("slow", "nvidia-4090", 24_000, 0.4, maximum=4)


def demand(info=M, per_s: float = 0.02):
    return replace(asked(info, gap_s=5.0), since_s=1.0, per_s=per_s)


def template(of, seconds: float) -> TemplateWorker:
    """An idle worker on which each action takes so many seconds of the whole worker."""
    rate = Rate(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, tokens=False)
    return TemplateWorker(of, rate, rate, 10.0, 0.0, 0.0, 0.0, 0, 0)


def overflow(*others, waiting=1e11, work_s=100.0, per_s=1.0, actions=60, helping=None):
    """``others``: a pool and the seconds of an action there, where one takes 2 in the full pool."""
    able = {t.pool.name: t for t in [template(FULL, 2.0), *(template(*o) for o in others)]}
    engines = [(demand(M, per_s), able["full"])]
    unfinished = {M.signature: UnfinishedWork(actions, waiting)}
    helping = helping or {pool.name: HelpingPool(pool.maximum) for pool, _ in others}
    return overflow_workers(FULL, engines, {M.signature: able}, work_s, unfinished, helping)


def test_workers_of_another_pool_are_added_while_they_save_more_waiting_than_they_cost():
    beyond = 58 / 60  # two of 60 actions could run alone in the full pool

    def cost(workers: int, waiting: float) -> float:
        return 2e9 * workers + beyond * waiting * 2 / (2 + workers)

    for waiting in (0.0, 1e9, 5e9, 2e10, 4e10, 1e12):
        best = min(range(5), key=lambda n: cost(n, waiting))
        assert overflow((NEAR, 2.0), waiting=waiting).get("near", 0) == best


def test_the_pool_with_the_lowest_price_for_its_speed_comes_first():
    even = overflow((NEAR, 2.0), (SLOW, 4.0), waiting=1.5e10)
    assert even == {"slow": 4}, "0.4 dollars at half the speed, before 2 at the same"
    assert overflow((NEAR, 2.0), (SLOW, 40.0), waiting=1.5e10) == {"near": 2}
    assert overflow((NEAR, 2.0), (SLOW, 4.0), waiting=1e12) == {"slow": 4, "near": 4}


def test_workers_that_are_paid_for_in_any_case_come_first():
    kept = replace(NEAR, minimum=2)
    assert overflow((kept, 2.0), (SLOW, 4.0), waiting=1e9) == {"near": 2}
    assert overflow((NEAR, 2.0), (SLOW, 4.0), waiting=1e9) == {}
    assert overflow((SLOW, 4.0), waiting=5e9) == {"slow": 3}
    assert overflow((kept, 2.0), (SLOW, 4.0), waiting=5e9) == {"near": 2}


def test_no_more_workers_than_actions_beyond_one_for_each_worker_of_the_full_pool():
    found = [
        overflow((NEAR, 2.0), waiting=1e12, actions=n, per_s=0.01).get("near", 0)
        for n in (1, 2, 3, 4, 9)
    ]
    assert found == [0, 0, 1, 2, 4]
    both = overflow((NEAR, 2.0), (SLOW, 4.0), waiting=1e12, actions=5, per_s=0.01)
    assert both == {"slow": 3}
    assert overflow((NEAR, 2.0), waiting=1.4e10, actions=4, per_s=0.01) == {"near": 1}


def test_a_pool_where_an_action_alone_takes_as_long_adds_none():
    assert overflow((SLOW, 59.0), actions=60), "60 actions, one a second: each takes 60 s here"
    assert overflow((SLOW, 61.0), actions=60) == {}


def test_workers_that_help_already_do_not_hide_that_they_are_needed():
    def found(helpers: int, actions: int, waiting: float) -> int:
        pools = {"near": HelpingPool(4, helpers)}
        return overflow((NEAR, 2.0), actions=actions, waiting=waiting, helping=pools)["near"]

    assert found(0, 60, 1e10) == found(2, 30, 5e9) == 1, "half of the actions, with twice the size"


def test_a_pool_gives_no_workers_that_it_needs_itself():
    pools = {"near": HelpingPool(1), "slow": HelpingPool(0)}
    assert overflow((NEAR, 2.0), (SLOW, 4.0), waiting=1e12, helping=pools) == {"near": 1}


def test_only_the_waiting_of_engines_that_a_pool_can_run_counts():
    able = {info.signature: {"full": template(FULL, 2.0)} for info in (M, N)}
    able[M.signature]["near"] = template(NEAR, 2.0)
    engines = [(demand(info, 0.1), able[info.signature]["full"]) for info in (M, N)]

    def found(of_m: int, of_n: int, m_waits: float = 1e12, n_waits: float = 1e12):
        unfinished = {
            M.signature: UnfinishedWork(of_m, m_waits if of_m else 0.0),
            N.signature: UnfinishedWork(of_n, n_waits if of_n else 0.0),
        }
        pools = {"near": HelpingPool(4)}
        return overflow_workers(FULL, engines, able, 100.0, unfinished, pools)

    assert found(0, 60) == {}
    assert found(1, 60) == {"near": 1}
    assert found(60, 0) == {"near": 4}
    assert found(30, 30, m_waits=0.0) == {}


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


def helpers(*args, **more) -> int:
    """The workers that the other pool adds."""
    return signal(*args, **more).backlogs["slow"].overflow


WORK = WorkSize(tokens_out=10_000.0, component_bytes=16 * 10**9)


def test_actions_that_share_a_full_pool_start_workers_of_another():
    found = signal(fleet(8))
    assert found.preferred == {M.signature: "full"}
    assert found.backlogs["slow"].overflow == 4
    assert found.overflow == {M.signature: {"slow"}}
    assert PoolSizer().sizes(SLOW, found.backlogs["slow"], 0, NOW_S).workers == 4


def test_actions_that_have_a_worker_each_start_none_elsewhere():
    found = signal(fleet(1))
    assert found.backlogs["slow"].overflow == 0
    assert not found.overflow.get(M.signature)


def test_ready_actions_wait_for_each_other_too():
    ready = [action(f"a{n}", M, work=WORK) for n in range(40)]
    found = signal(fleet(0), ready, warm=[demand(per_s=0.01)])
    assert found.backlogs["full"].actions == 40
    assert found.backlogs["slow"].overflow == 4
    assert helpers(fleet(0), ready[:2], warm=[demand(per_s=0.01)]) == 0, "a worker is free for each"


def test_a_pool_below_its_maximum_grows_by_itself():
    larger = replace(FULL, maximum=100)
    found = signal(fleet(8), pools=(larger, SLOW))
    assert found.backlogs["slow"].overflow == 0
    assert not found.overflow


def test_a_pool_that_its_actions_do_not_fill_is_not_full():
    larger = replace(FULL, maximum=4)
    assert larger.maximum < signal(fleet(8)).backlogs["full"].workers_that_pay(larger, 9)
    assert helpers(fleet(8), pools=(larger, SLOW)) == 0, "its actions run on two workers"


def test_no_workers_are_added_for_work_that_has_stopped_arriving():
    stopped = replace(demand(), since_s=500.0)
    assert helpers(fleet(8), warm=[stopped]) == 0


def test_work_of_namespaces_with_a_limit_on_workers_starts_none_elsewhere():
    both = frozenset({"full-0", "full-1"})
    assert helpers(fleet(8), uses={"team": WorkerUse(both, 2)}) == 0
    assert helpers(fleet(8), uses={"team": WorkerUse(both, 3)}) == 0
    assert helpers(fleet(8), uses={"team": WorkerUse(frozenset({"full-0"}), 2)})
    ready = [action(f"a{n}", M, bounded_tenants=frozenset({"team"}), work=WORK) for n in range(40)]
    uses = {"team": WorkerUse(frozenset(), 5)}
    found = signal(fleet(0), ready, warm=[demand(per_s=0.01)], uses=uses)
    assert found.backlogs["full"].actions == 40
    assert found.backlogs["slow"].overflow == 0


def test_work_that_needs_trust_or_a_reserved_pool_starts_none_elsewhere():
    trusted = [action(f"a{n}", M, work=WORK, min_trust=1) for n in range(40)]
    assert helpers(fleet(0), trusted, warm=[demand(per_s=0.01)]) == 0


def test_workers_that_help_are_added_to_those_that_the_pool_needs_itself():
    def workers(**figures) -> int:
        return PoolSizer().sizes(NEAR, Backlog(**figures), 0, NOW_S).workers

    assert workers(steady=1, overflow=2) == 3
    assert workers(steady=3, overflow=2) == 4, "its maximum"
    bounded = {"unbounded": Backlog(), "bounded": {"team": 1}, "actions": 1}
    assert workers(overflow=2, **bounded) == 2, "a limit of others does not end the help"


def test_workers_help_several_full_pools_but_not_two_of_them_at_once():
    small = pool("full", "nvidia-h100", 20_000, 2.0, maximum=1)
    one = replace(SLOW, maximum=1)
    like = worker("spare", pool="spare", device_class="nvidia-4090", memory_mib=24_000).shape

    def spare(of_m: int, of_n: int, maximum: int = 40) -> int:
        others = replace(SLOW, name="spare", shape=like, maximum=maximum)
        of_m_here = lane(M, assigned=of_m, remaining_s=100.0)
        of_n_here = lane(N, assigned=of_n, remaining_s=100.0)
        workers = [
            worker("full-0", of_m_here, pool="full", memory_mib=20_000),
            worker("slow-0", of_n_here, pool="slow", memory_mib=24_000),
        ]
        found = signal(workers, warm=[demand(), demand(N)], pools=(small, one, others))
        assert found.preferred == {M.signature: "full", N.signature: "slow"}
        return found.backlogs["spare"].overflow

    for_m, for_n = spare(8, 1), spare(1, 8)
    assert min(for_m, for_n) > 0
    assert spare(8, 8) == for_m + for_n
    assert spare(8, 8, maximum=for_m + 1) == for_m + 1


def test_actions_that_share_a_worker_of_another_pool_count_for_the_full_one():
    sharing = lane(M, assigned=8, remaining_s=1.0)
    elsewhere = worker("slow-0", sharing, pool="slow", memory_mib=24_000)
    assert helpers(fleet(1)) == 0
    assert helpers([*fleet(1), elsewhere])


def test_an_engine_that_no_other_pool_can_run_overflows_nowhere():
    large = model("n", 40)
    found = signal(fleet(8), warm=[demand(), demand(large, 0.002)])
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
    first = worker("0", pool="slow", memory_mib=24_000)
    two = worker("a", lane(info, assigned=2), pool="h100", memory_mib=80_000)
    plan = prewarm_plan([first, two, idle("b")], warm, home, {info.signature: {"slow"}})
    assert plan.keys() == {"a", "b"}, "the preferred pool's own idle worker comes first"
