"""Engines in demand live on cheaper devices while they are hardly used, and on faster ones else."""

from dataclasses import dataclass, field, replace
from math import inf

import pytest
from msgspec import structs
from tests.flowmesh_core.autoscaling.test_preferred_pools import GB, H100, RTX, model, pool
from tests.flowmesh_core.placement.builders import NOW_S, lane, snapshot, worker

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.engine_relocation import (
    EngineReadiness,
    EngineRelocation,
    PoolRequirement,
)
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.settings import BUSY_SHARE, QUIET_SHARE, SETTLED_SHARE, STEADY_S
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.demand import ARRIVAL_WINDOW_S, SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights

CALM_S, TARGET_S = 300.0, 60.0
BIG, SMALL = model("big"), model("small", 4)
ALIKE, THRIFTY, HASTY = (
    UtilityWeights(),
    UtilityWeights(0.25, 1.0, 0.5),
    UtilityWeights(1.0, 0.1, 0.25),
)
PRICES = {"fast": 2.0, "middle": 0.8, "cheap": 0.5}
POOLS = {name: pool(name, "nvidia-l40s", 24_000, usd) for name, usd in PRICES.items()}


@dataclass
class Demand:
    """Pools under one demand in virtual time.

    Attributes:
        usd: what each would add to the bill; ``use`` how much would be asked of it.
        open_: the share of the engines that each has open; ``opening`` that loads besides.
        names: by utility, the best first.
    """

    usd: dict[str, float]
    use: dict[str, float]
    open_: dict[str, float] = field(default_factory=lambda: {"fast": 1.0})
    opening: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ("fast", "middle", "cheap")
    weights: tuple[UtilityWeights, ...] = (ALIKE,)
    sizing: EngineRelocation = field(default_factory=EngineRelocation)
    now_s: float = 0.0

    def after(self, seconds: float, **use: float) -> str:
        """The pool that comes first when so much time has passed, looked at every 10 s."""
        self.use |= use
        first = self.look()
        for _ in range(int(seconds / 10)):
            self.now_s += 10.0
            first = self.look()
        return first

    def left(self) -> str:
        """The pool that is told that it was left."""
        return next((n for n in self.usd if self.sizing.was_vacated(n, self.now_s)), "")

    def look(self) -> str:
        fleets = {n: PoolRequirement(POOLS[n], self.usd[n] * GB, self.use[n]) for n in self.usd}
        names = [name for name in self.names if name in self.usd]
        ready = {**dict.fromkeys(self.opening, 0.0), **self.open_}
        open_ = {
            n: EngineReadiness(share + self.opening.get(n, 0.0), share)
            for n, share in ready.items()
        }
        order = self.sizing.order(names, open_, fleets, self.weights, self.now_s)
        assert sorted(order) == sorted(names)
        return order[0]


def demand(fast: float = QUIET_SHARE, cheap: float = BUSY_SHARE, **changes) -> Demand:
    return Demand({"fast": 2.0, "cheap": 0.5}, {"fast": fast, "cheap": cheap}, **changes)


def test_engines_leave_a_pool_that_was_quiet_long_enough_for_a_cheaper_one():
    there = demand()
    assert there.after(CALM_S - 10.0) == "fast"
    assert there.after(10.0) == "cheap"
    there.open_ = {"cheap": 1.0}
    assert there.after(3600.0, fast=0.9) == "cheap", "it would be used more, but nobody waits"


def test_of_several_sufficient_pools_the_cheapest_is_chosen():
    there = demand()
    there.usd |= {"middle": 0.8}
    assert there.after(CALM_S, middle=0.1, cheap=BUSY_SHARE + 0.1) == "middle"


def test_the_quiet_period_restarts_if_the_pool_was_used_in_between():
    there = demand()
    there.after(CALM_S - 10.0)
    there.after(0.0, fast=QUIET_SHARE + 0.1)
    assert there.after(CALM_S - 10.0, fast=QUIET_SHARE) == "fast"
    assert there.after(10.0) == "cheap"


def test_engines_leave_a_busy_pool_for_a_more_expensive_one_sooner():
    there = demand(fast=0.4, cheap=BUSY_SHARE + 0.1, names=("cheap", "fast"), open_={"cheap": 1.0})
    assert there.after(TARGET_S - 10.0) == "cheap"
    assert there.after(10.0) == "fast"
    there.open_ = {"fast": 1.0}
    assert there.after(3600.0) == "fast"


def test_engines_stay_in_a_busy_pool_if_the_more_expensive_one_cannot_hold_all():
    there = demand(cheap=0.9, names=("cheap", "fast"), open_={"cheap": 1.0})
    there.usd["fast"] = inf
    assert there.after(3600.0) == "cheap"
    assert there.sizing.moves == 0


def test_engines_stay_in_the_most_expensive_pool_however_busy_it_is():
    assert demand(fast=3.0, cheap=0.1).after(3600.0) == "fast"


def test_demand_that_prefers_dollars_stays_with_the_cheap_pool():
    busy = demand(fast=0.1, cheap=0.9, names=("cheap", "fast"), weights=(THRIFTY, THRIFTY))
    busy.open_ = {"cheap": 1.0}
    assert busy.after(3600.0) == "cheap"
    busy.weights = (THRIFTY, ALIKE)
    assert busy.after(TARGET_S) == "fast"


@pytest.mark.parametrize(
    ("usd", "use"),
    [
        ({"fast": 2.0, "cheap": 1.7}, {}),  # not much cheaper
        ({"fast": 2.0, "cheap": inf}, {}),  # cannot hold all
        ({"fast": inf, "cheap": 0.5}, {}),  # what it would save is not known
        ({"fast": 0.0, "cheap": 0.0}, {}),  # paid for anyway
        ({"fast": 2.0, "cheap": 0.5}, {"cheap": BUSY_SHARE + 0.01}),
        ({"fast": 2.0, "cheap": 0.5}, {"fast": QUIET_SHARE + 0.01}),
    ],
)
def test_nothing_moves_where_it_would_not_pay(usd, use):
    there = demand()
    there.usd = usd
    assert there.after(3600.0, **use) == "fast"


def test_engines_of_demand_that_prefers_seconds_are_not_moved_and_are_moved_back():
    there = demand(weights=(ALIKE, HASTY))
    assert there.after(3600.0) == "fast"
    assert there.sizing.moves == 0
    there.weights = (ALIKE,)
    assert there.after(CALM_S) == "cheap"
    assert there.sizing.moves == 1
    there.open_ = {"cheap": 1.0}
    there.look()
    assert there.left() == "fast"
    there.weights = (ALIKE, HASTY)
    assert there.after(0.0) == "fast"
    assert (there.sizing.leaving, there.left()) == ({"cheap"}, "")


def test_engines_stay_where_half_of_them_are_loaded_even_if_the_best_pool_changes():
    there = demand(fast=0.4, cheap=0.4, open_={"fast": 0.5, "cheap": 0.4})
    there.after(0.0)
    there.names, there.open_ = ("cheap", "fast"), {"fast": 0.5, "cheap": 1.0}
    assert there.after(3600.0) == "fast"


def test_a_pool_that_cannot_hold_a_new_model_is_left_for_one_that_can():
    there = demand()
    there.after(CALM_S)
    there.usd |= {"cheap": inf, "middle": inf}
    there.names, there.open_ = ("middle", "fast", "cheap"), {"middle": 1.0, "fast": SETTLED_SHARE}
    assert there.after(0.0, middle=0.1) == "fast"
    assert there.sizing.leaving == set()
    there.weights = (HASTY,)
    assert there.after(0.0) == "fast"


def test_all_relocation_state_is_dropped_when_there_is_no_demand_any_more():
    there = demand()
    there.after(CALM_S)
    assert there.sizing.order(["fast", "cheap"], {}, {}, (), there.now_s) == ["fast", "cheap"]
    assert there.after(CALM_S - 10.0) == "fast"


def test_a_pool_is_vacated_only_when_all_engines_are_loaded_in_the_next():
    there = demand()
    there.after(CALM_S)
    there.open_ = {"cheap": 0.9, "fast": 1.0}
    there.after(CALM_S - 20.0)
    assert (there.sizing.leaving, there.left()) == ({"fast"}, "")
    there.open_ = {"cheap": 1.0}
    there.after(0.0)
    assert (there.sizing.leaving, there.left()) == (set(), "fast")
    there.after(60.0)
    assert there.left() == "", "what is told once need not be told for ever"


def test_an_engine_that_does_not_load_keeps_the_old_pool_only_for_its_stabilization_window():
    there = demand()
    there.after(CALM_S)
    there.open_ = {"cheap": 0.9, "fast": 1.0}
    there.after(CALM_S - 10.0)
    assert there.sizing.leaving == {"fast"}
    there.after(10.0)
    assert (there.sizing.leaving, there.left()) == (set(), "fast")


def test_a_pool_that_was_too_small_is_retained_as_long_as_any_other():
    there = demand(fast=0.4, cheap=0.9, names=("cheap", "fast"), open_={"cheap": 1.0})
    there.after(TARGET_S)
    there.open_ = {"fast": 1.0}
    there.after(0.0)
    assert (there.sizing.leaving, there.left()) == (set(), "")


def test_a_pool_with_loaded_engines_is_retained_even_if_the_target_changes_twice():
    there = demand()
    there.usd |= {"middle": 0.8}
    there.after(CALM_S, middle=0.1)
    there.after(TARGET_S, cheap=0.9, fast=0.9)
    assert there.look() == "middle"
    assert there.sizing.leaving == {"fast", "cheap"}
    del there.usd["cheap"]
    there.look()
    assert there.sizing.leaving == {"fast"}, "the other is gone"
    there.open_ = {"fast": 0.9}
    assert there.after(TARGET_S, middle=0.9, fast=0.4) == "fast"
    assert there.sizing.leaving == {"middle"}


def test_a_pool_that_gets_no_workers_is_given_up_and_another_is_tried():
    there = demand()
    there.usd |= {"middle": 0.8}
    assert there.after(CALM_S, middle=0.1) == "cheap"
    there.usd["cheap"] = inf
    assert there.look() == "fast"
    assert there.sizing.leaving == set()
    assert there.after(2 * CALM_S - 10.0) == "fast", "it waits longer the second time"
    assert there.after(20.0) == "middle"


def test_engines_that_do_not_load_return_to_the_pool_where_most_of_them_are():
    there = demand()
    there.usd |= {"middle": 0.8}
    there.after(CALM_S, middle=0.1)
    there.after(TARGET_S, cheap=0.9, fast=0.9)
    assert there.look() == "middle"
    there.open_ = {"fast": 1.0, "cheap": 0.6, "middle": 0.4}
    assert there.after(2 * CALM_S - 10.0, middle=0.4) == "middle"
    assert there.after(10.0) == "fast"
    assert there.sizing.leaving == set()
    there.use |= {"fast": QUIET_SHARE, "cheap": BUSY_SHARE}
    assert there.after(2 * CALM_S) == "fast", "twice as long is waited the next time, and more"
    assert there.after(2 * CALM_S) == "cheap"


def test_engines_that_load_for_long_are_waited_for():
    there = demand()
    there.after(CALM_S)
    there.open_, there.opening = {"fast": 1.0}, {"cheap": SETTLED_SHARE}
    assert there.after(3600.0) == "cheap"
    assert (there.sizing.leaving, there.sizing.moves) == ({"fast"}, 1)


def test_engines_that_had_to_return_wait_longer_before_each_further_relocation():
    there, stays = demand(), []
    for _ in range(8):
        there.open_, began_s = {"fast": 1.0}, there.now_s
        while there.after(10.0, fast=QUIET_SHARE, cheap=BUSY_SHARE) == "fast":
            pass
        stays.append(there.now_s - began_s)
        there.open_ = {"cheap": 1.0}
        assert there.after(TARGET_S + 10.0, cheap=0.9, fast=0.4) == "fast"
    assert stays == pytest.approx([CALM_S * min(32, 2**n) for n in range(8)], abs=20.0)


def test_engines_that_stayed_away_for_long_wait_half_as_long_the_next_time():
    there = demand()
    for away_s, waits_s in ((0.0, CALM_S), (0.0, 2 * CALM_S), (STEADY_S, 4 * CALM_S)):
        assert there.after(waits_s - 10.0, fast=QUIET_SHARE, cheap=BUSY_SHARE) == "fast"
        assert there.after(20.0) == "cheap"
        there.open_ = {"cheap": 1.0}
        there.after(away_s)
        assert there.after(TARGET_S, cheap=0.9, fast=0.4) == "fast"
        there.open_ = {"fast": 1.0}
    assert there.after(2 * CALM_S - 20.0, fast=QUIET_SHARE, cheap=BUSY_SHARE) == "fast"
    assert there.after(40.0) == "cheap"


def test_nothing_moves_while_no_engine_is_to_be_kept_loaded_or_none_is_ready():
    there = demand(open_={})
    assert there.after(3600.0) == "fast"
    there.open_, there.opening = {"fast": 0.4}, {"fast": 0.6}
    assert there.after(3600.0) == "fast"


def test_time_without_engines_to_keep_loaded_does_not_count_as_waiting():
    there = demand()
    there.after(CALM_S)
    there.open_ = {}
    there.after(5 * CALM_S)
    there.open_ = {"fast": 0.4}
    assert there.after(2 * CALM_S - 10.0) == "cheap"
    assert there.after(10.0) == "fast"


def test_time_without_demand_counts_as_having_stayed_in_the_pool():
    there = demand()
    there.after(CALM_S)
    there.open_ = {"cheap": 1.0}
    there.after(10.0)
    there.open_ = {}
    there.after(STEADY_S)
    there.open_ = {"cheap": 1.0}
    assert there.after(TARGET_S, cheap=0.9, fast=0.4) == "fast"
    there.open_ = {"fast": 1.0}
    assert there.after(CALM_S + 10.0, fast=QUIET_SHARE, cheap=BUSY_SHARE) == "cheap"


# -- with real pools ---------------------------------------------------------------------------


def asked(
    info, per_s: float, weights: UtilityWeights = ALIKE, since_s: float = 0.0
) -> SignatureDemand:
    work = WorkSize(tokens_out=10_000.0, component_bytes=16 * GB)
    return SignatureDemand(info, 1.0 / per_s, since_s, work, weights, per_s)


def signals(per_s: float, weights: UtilityWeights = ALIKE, rooms=(H100, RTX), infos=(BIG, SMALL)):
    """The signal at first and when it should have moved, all being open on an H100."""
    sizing, found = EngineRelocation(), []
    hot = worker("w", *map(lane, infos), pool="h100", memory_mib=80_000)
    for now_s in range(int(NOW_S), int(NOW_S + CALM_S) + 60, 60):
        view = replace(snapshot([hot], [], []), now_s=float(now_s))
        warm = [asked(info, per_s, weights) for info in infos]
        found.append(signal_of(view, CostModel(), rooms, warm, sizing))
    return found[0], found[-1]


def homes(*args, **changes):
    return tuple(set(signal.homes.values()) for signal in signals(*args, **changes))


RARE, OFTEN = 1 / 300, 2.0


def test_rare_demand_moves_and_frequent_demand_stays():
    assert homes(RARE) == ({"h100"}, {"rtx"})
    assert homes(OFTEN) == ({"h100"}, {"h100"})


def test_a_pool_to_be_vacated_keeps_its_worker_until_the_next_pool_has_one():
    _, after = signals(RARE)
    assert (after.backlogs["h100"].warm, after.backlogs["rtx"].warm) == (1, 1)


def test_a_pool_that_all_engines_left_is_reported_as_vacated():
    sizing = EngineRelocation()
    hot = [lane(BIG), lane(SMALL)]
    for now_s, where in ((NOW_S, H100), (NOW_S + CALM_S, H100), (NOW_S + 400.0, RTX)):
        there = worker("w", *hot, pool=where.name, memory_mib=80_000)
        view = replace(snapshot([there], [], []), now_s=now_s)
        warm = [asked(BIG, RARE), asked(SMALL, RARE)]
        signal = signal_of(view, CostModel(), (H100, RTX), warm, sizing)
    assert {name: backlog.vacated for name, backlog in signal.backlogs.items()} == {
        "h100": True,
        "rtx": False,
    }


def test_an_expensive_pool_is_preferred_if_its_worker_is_paid_for_in_any_case():
    dear = pool("h100", "nvidia-h100", 80_000, 40.0, maximum=1)
    assert homes(OFTEN, THRIFTY, rooms=(dear, RTX))[0] == {"h100"}, "half of them are open there"
    for kept, home in ((dear, "rtx"), (replace(dear, minimum=1), "h100")):
        warm = [asked(BIG, RARE)]
        signal = signal_of(snapshot([], [], []), CostModel(), (kept, RTX), warm)
        assert set(signal.homes.values()) == {home}


def test_demand_that_prefers_seconds_stays():
    assert homes(RARE, HASTY) == ({"h100"}, {"h100"})


def test_workers_within_a_pools_minimum_add_no_cost():
    assert homes(RARE, rooms=(replace(H100, minimum=1), RTX)) == ({"h100"}, {"h100"})


def test_only_workers_with_engines_in_demand_are_retained_in_a_pool_being_vacated():
    sizing = EngineRelocation()
    hot = worker("a", lane(BIG), lane(SMALL), pool="h100", memory_mib=80_000)
    goes = replace(hot, shape=structs.replace(hot.shape, name="b"), draining=True)
    idle = worker("c", pool="h100", memory_mib=80_000)
    for now_s in (NOW_S, NOW_S + CALM_S):
        view = replace(snapshot([hot, goes, idle], [], []), now_s=now_s)
        warm = [asked(BIG, RARE), asked(SMALL, RARE)]
        signal = signal_of(view, CostModel(), (H100, RTX), warm, sizing)
    assert set(signal.homes.values()) == {"rtx"}
    assert signal.backlogs["h100"].warm == 1


def test_workers_are_not_retained_for_engines_that_need_not_stay_loaded():
    sizing = EngineRelocation()
    sizing.first, sizing.leaving = "rtx", {"h100"}
    hot = worker("w", lane(BIG), pool="h100", memory_mib=80_000)
    warm = [asked(BIG, RARE, since_s=400.0), asked(SMALL, RARE)]
    view = replace(snapshot([hot], [], []), now_s=1.0)
    assert signal_of(view, CostModel(), (H100, RTX), warm, sizing).backlogs["h100"].warm == 0


def test_loading_engines_and_engines_on_leaving_workers_do_not_count_as_loaded():
    for hot in (
        worker("w", lane(BIG, load_remaining_s=9.0), pool="rtx", memory_mib=24_000),
        worker("w", lane(BIG), pool="rtx", memory_mib=24_000, draining=True),
        worker("w", lane(SMALL), pool="rtx", memory_mib=24_000),
    ):
        sizing = EngineRelocation()
        sizing.first, sizing.leaving = "rtx", {"h100"}
        view = replace(snapshot([hot], [], []), now_s=1.0)
        warm = [asked(BIG, RARE), asked(SMALL, RARE, since_s=400.0)]
        signal_of(view, CostModel(), (H100, RTX), warm, sizing)
        assert sizing.leaving == {"h100"}


def test_a_pool_without_workers_holds_no_engines():
    assert homes(RARE, rooms=(H100, replace(RTX, maximum=0))) == ({"h100"}, {"h100"})


def test_a_model_that_the_cheaper_pool_cannot_hold_keeps_all_engines_in_place():
    assert homes(RARE, infos=(BIG, model("huge", 40))) == ({"h100"}, {"h100"})


def test_a_pool_too_small_for_all_engines_is_not_a_candidate():
    tiny = pool("tiny", "nvidia-4090", 12_000, 0.1, maximum=1)
    assert homes(RARE, rooms=(H100, tiny)) == ({"h100"}, {"h100"})


def test_engines_that_are_no_longer_kept_loaded_do_not_count():
    sizing, gone = EngineRelocation(), asked(BIG, RARE, since_s=RTX.stabilization_s + 1.0)
    hot = worker("w", lane(BIG), pool="h100", memory_mib=80_000)
    view = replace(snapshot([hot], [], []), now_s=NOW_S)
    signal_of(view, CostModel(), (H100, RTX), [gone, asked(SMALL, RARE)], sizing)
    assert sizing.first is None


def test_a_model_without_recent_demand_does_not_affect_the_choice():
    sizing = EngineRelocation()
    huge = asked(model("huge", 40), RARE, since_s=ARRIVAL_WINDOW_S + 1.0)
    for now_s in (NOW_S, NOW_S + CALM_S):
        hot = worker("w", lane(SMALL), pool="h100", memory_mib=80_000)
        view = replace(snapshot([hot], [], []), now_s=now_s)
        signal = signal_of(view, CostModel(), (H100, RTX), [asked(SMALL, RARE), huge], sizing)
    assert set(signal.homes.values()) == {"rtx"}


def test_a_vacated_pool_shrinks_at_once_but_has_its_stabilization_window_when_needed_again():
    quiet = PoolSizer(stabilization_s=CALM_S)
    view = replace(H100, stabilization_s=CALM_S)
    backlog = signals(RARE)[0].backlogs["h100"]
    busy, idle = replace(backlog, warm=0, actions=1), replace(backlog, warm=0)
    assert quiet.sizes(view, busy, 1, 0.0).workers == 1
    assert quiet.sizes(view, idle, 1, 10.0).workers == 1
    assert quiet.sizes(view, replace(idle, vacated=True), 1, 20.0).workers == 0
    assert quiet.sizes(view, replace(busy, vacated=True), 0, 30.0).workers == 1
    assert quiet.sizes(view, replace(idle, vacated=True), 1, 40.0).workers == 1
