"""Engines in demand live in the pool whose bill and waiting cost least, and move once that pays."""

from dataclasses import dataclass, field, replace
from math import inf

import pytest
from msgspec import structs
from tests.flowmesh_core.autoscaling.test_preferred_pools import GB, model, pool
from tests.flowmesh_core.autoscaling.test_preferred_pools import H100 as H100_AT_ONCE
from tests.flowmesh_core.autoscaling.test_preferred_pools import RTX as RTX_AT_ONCE
from tests.flowmesh_core.placement.builders import NOW_S, lane, snapshot, worker

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.engine_relocation import (
    EngineReadiness,
    EngineRelocation,
    PoolRequirement,
)
from flowmesh_core.autoscaling.settings import ROUND_MOST_S, SETTLED_SHARE
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.demand import ARRIVAL_WINDOW_S, SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights

START_S = 100.0
H100, RTX = (replace(at_once, start_s=START_S) for at_once in (H100_AT_ONCE, RTX_AT_ONCE))
"""A worker with 16 GB of weights loaded takes less than three minutes."""
RESTART_S = 360.0
USD = 1e9
BIG, SMALL = model("big"), model("small", 4)
ALIKE, THRIFTY, HASTY = (
    UtilityWeights(),
    UtilityWeights(0.25, 1.0, 0.5),
    UtilityWeights(1.0, 0.1, 0.25),
)
PRICES = {"fast": 2.0, "middle": 0.8, "cheap": 0.5}
POOLS = {name: pool(name, "nvidia-l40s", 24_000, usd) for name, usd in PRICES.items()}
LONG_S = 600.0
"""Seconds after which a move that pays with real pools has been made."""
PAYS_S = RESTART_S * 0.5 / (2.0 - 0.5)
"""Seconds after which the cheap pool would have saved what the move to it costs."""


@dataclass
class Demand:
    """Pools under one demand in virtual time.

    Attributes:
        usd: what each would add to the bill in an hour; ``waiting`` what its users' time is worth.
        open_: the share of the engines that each has open; ``opening`` that loads besides.
        names: by utility, the best first.
    """

    usd: dict[str, float]
    waiting: dict[str, float] = field(default_factory=dict)
    open_: dict[str, float] = field(default_factory=lambda: {"fast": 1.0})
    opening: dict[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ("fast", "middle", "cheap")
    relocation: EngineRelocation = field(default_factory=EngineRelocation)
    now_s: float = 0.0

    def after(self, seconds: float, **waiting: float) -> str:
        """The pool that comes first when so much time has passed, looked at every 10 s."""
        self.waiting |= waiting
        first = self.look()
        for _ in range(int(seconds / 10)):
            self.now_s += 10.0
            first = self.look()
        return first

    def look(self) -> str:
        fleets = {
            n: PoolRequirement(POOLS[n], usd * USD, self.waiting.get(n, 0.0) * USD, RESTART_S)
            for n, usd in self.usd.items()
        }
        names = [name for name in self.names if name in self.usd]
        ready = {**dict.fromkeys(self.opening, 0.0), **self.open_}
        open_ = {
            n: EngineReadiness(share + self.opening.get(n, 0.0), share)
            for n, share in ready.items()
        }
        order = self.relocation.order(names, open_, fleets, self.now_s)
        assert sorted(order) == sorted(names)
        return order[0]


def test_pools_that_cost_nothing_more_do_not_flap():
    """A move costs a worker's time there, also where that is paid for in any case."""
    given = Demand({"fast": 0.0, "cheap": 0.0})
    for n in range(100):
        wait, other = (1.0, 1.02) if n % 2 else (1.02, 1.0)
        given.after(10.0, fast=wait, cheap=other)
    assert given.relocation.moves == 0


def demand(**changes) -> Demand:
    return Demand({"fast": 2.0, "cheap": 0.5}, **changes)


def test_engines_move_once_the_other_pool_would_have_saved_what_the_move_costs():
    there = demand()
    assert there.after(PAYS_S) == "fast"
    assert there.after(10.0) == "cheap"
    assert there.relocation.moves == 1


def test_users_who_wait_count_as_dollars_do():
    there = demand(waiting={"cheap": 1.6})
    assert there.after(3600.0) == "fast", "what is saved is less than what they lose"
    assert there.after(2 * PAYS_S - 20.0, cheap=0.75) == "fast"
    assert there.after(30.0) == "cheap", "half is saved, so it takes twice as long to pay"
    there.open_ = {"cheap": 1.0}
    there.after(0.0)
    assert there.after(600.0, cheap=3.5) == "fast", "the bill is less than their time"


def test_of_several_pools_the_one_that_would_have_saved_most_is_chosen():
    there = demand(waiting={"cheap": 1.0})
    there.usd["middle"] = 0.8
    assert there.after(300.0) == "middle"


def test_nothing_that_another_pool_would_save_counts_while_the_engines_load():
    """Actions wait for them, so their rates are low and a slow pool looks good enough."""
    there = demand(open_={"fast": 0.49}, opening={"fast": 0.51})
    assert there.after(10 * PAYS_S) == "fast"
    there.open_, there.opening = {"fast": SETTLED_SHARE}, {}
    assert there.after(PAYS_S) == "fast"
    assert there.after(10.0) == "cheap"


def test_a_time_in_which_the_other_pool_would_be_worse_counts_against_it():
    there = demand()
    there.after(PAYS_S - 20.0)
    there.after(PAYS_S, cheap=3.0)
    assert there.after(PAYS_S - 20.0, cheap=0.0) == "fast"
    assert there.after(40.0) == "cheap"


@pytest.mark.parametrize(
    ("usd", "waiting"),
    [
        ({"fast": 2.0, "cheap": 2.0}, {}),
        ({"fast": 2.0, "cheap": inf}, {}),  # cannot hold all
        ({"fast": inf, "cheap": inf}, {}),
        ({"fast": 0.0, "cheap": 0.0}, {}),  # paid for anyway
        ({"fast": 2.0, "cheap": 0.5}, {"cheap": 1.5}),
    ],
)
def test_nothing_moves_where_it_would_not_pay(usd, waiting):
    there = demand()
    there.usd = usd
    assert there.after(3600.0, **waiting) == "fast"
    assert there.relocation.moves == 0


def test_time_without_a_control_plane_counts_for_one_round_at_most():
    there = demand()
    there.look()
    there.now_s += 3600.0
    assert there.look() == "fast"
    assert there.after(PAYS_S - ROUND_MOST_S) == "fast"
    assert there.after(10.0) == "cheap"


def test_engines_stay_where_half_of_them_are_loaded_even_if_the_best_pool_changes():
    there = demand(waiting={"cheap": 1.5}, open_={"fast": 0.5, "cheap": 0.4})
    there.after(0.0)
    there.names, there.open_ = ("cheap", "fast"), {"fast": 0.5, "cheap": 1.0}
    assert there.after(3600.0) == "fast"


def test_a_pool_that_cannot_hold_a_new_model_is_left_for_one_that_can():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.usd |= {"cheap": inf, "middle": inf}
    there.names, there.open_ = ("middle", "fast", "cheap"), {"middle": 1.0, "fast": SETTLED_SHARE}
    assert there.after(0.0) == "fast"
    assert there.relocation.leaving == set()


def test_without_demand_the_order_by_utility_holds():
    there = demand()
    assert there.relocation.order(["fast", "cheap"], {}, {}, 0.0) == ["fast", "cheap"]


def test_a_pool_is_given_up_only_when_all_engines_are_loaded_in_the_next():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.open_ = {"cheap": 0.9, "fast": 1.0}
    there.after(RESTART_S - 10.0)
    assert there.relocation.leaving == {"fast"}
    there.open_ = {"cheap": 1.0}
    there.after(0.0)
    assert there.relocation.leaving == set()


def test_an_engine_that_does_not_load_keeps_the_old_pool_only_as_long_as_loading_takes():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.open_ = {"cheap": 0.9, "fast": 1.0}
    there.after(RESTART_S - 10.0)
    assert there.relocation.leaving == {"fast"}
    there.after(10.0)
    assert there.relocation.leaving == set()


def test_engines_do_not_move_again_while_they_move():
    there = demand()
    there.usd["middle"] = 0.8
    there.after(PAYS_S + 10.0)
    there.opening = {"cheap": 1.0}
    assert there.after(3600.0, cheap=9.0, middle=0.0) == "cheap"
    assert there.relocation.moves == 1


def test_a_pool_to_move_to_that_is_removed_gives_the_engines_back():
    there = demand()
    there.after(PAYS_S + 10.0)
    del there.usd["cheap"]
    assert there.look() == "fast"
    assert there.relocation.leaving == set()


def test_engines_that_do_not_load_return_and_what_the_next_move_must_save_doubles():
    there, stays = demand(), []
    for _ in range(7):
        there.open_, began_s = {"fast": 1.0}, there.now_s
        while there.after(10.0) == "fast":
            pass
        stays.append(there.now_s - began_s)
        there.open_ = {"fast": 1.0, "cheap": 0.4}
        assert there.after(2 * RESTART_S - 20.0) == "cheap"
        assert there.after(20.0) == "fast"
        assert there.relocation.leaving == set()
    assert stays == pytest.approx([PAYS_S * 2 ** min(5, n) for n in range(7)], abs=20.0)


def test_a_move_that_succeeds_forgets_the_failures_before():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.after(2 * RESTART_S)
    there.after(2 * PAYS_S + 20.0)
    there.open_ = {"cheap": 1.0}
    there.after(0.0)
    there.after(600.0, cheap=9.0)
    there.open_ = {"fast": 1.0}
    there.after(0.0, cheap=0.0)
    assert there.after(PAYS_S + 10.0) == "cheap"


def test_engines_that_load_for_long_are_waited_for():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.open_, there.opening = {"fast": 1.0}, {"cheap": SETTLED_SHARE}
    assert there.after(3600.0) == "cheap"
    assert (there.relocation.leaving, there.relocation.moves) == ({"fast"}, 1)


def test_nothing_moves_while_no_engine_is_open_anywhere():
    there = demand(open_={})
    assert there.after(3600.0) == "fast"
    there.open_, there.opening = {"fast": 0.4}, {"fast": 0.0}
    assert there.after(3600.0) == "fast"


def test_time_without_engines_in_demand_does_not_count_as_waiting_for_them():
    there = demand()
    there.after(PAYS_S + 10.0)
    there.open_ = {}
    there.after(5 * RESTART_S)
    there.open_ = {"fast": 0.4}
    assert there.after(2 * RESTART_S - 10.0) == "cheap"
    assert there.after(10.0) == "fast"


# -- with real pools ---------------------------------------------------------------------------


def asked(
    info, per_s: float, weights: UtilityWeights = ALIKE, since_s: float = 0.0
) -> SignatureDemand:
    work = WorkSize(tokens_out=10_000.0, component_bytes=16 * GB)
    return SignatureDemand(info, 1.0 / per_s, since_s, work, weights, per_s)


def looks() -> list[float]:
    """When the signal is asked for until the engines should have moved."""
    return [NOW_S + passed_s for passed_s in range(0, int(LONG_S) + 1, 60)]


def signals(per_s: float, weights: UtilityWeights = ALIKE, rooms=(H100, RTX), infos=(BIG, SMALL)):
    """The signal at first and when it should have moved, all being open on an H100."""
    relocation, found = EngineRelocation(), []
    hot = worker("w", *map(lane, infos), pool="h100", memory_mib=80_000)
    for now_s in looks():
        view = replace(snapshot([hot], [], []), now_s=now_s)
        warm = [asked(info, per_s, weights) for info in infos]
        found.append(signal_of(view, CostModel(), rooms, warm, relocation))
    return found[0], found[-1]


def homes(*args, **changes):
    return tuple(set(signal.preferred.values()) for signal in signals(*args, **changes))


RARE, OFTEN = 1 / 300, 2.0


def test_rare_demand_moves_and_frequent_demand_stays():
    assert homes(RARE) == ({"h100"}, {"rtx"})
    assert homes(OFTEN) == ({"h100"}, {"h100"})


def test_a_pool_to_be_given_up_keeps_its_worker_until_the_next_pool_has_one():
    _, after = signals(RARE)
    assert (after.backlogs["h100"].warm, after.backlogs["rtx"].warm) == (1, 1)


def test_an_expensive_pool_is_preferred_if_its_worker_is_paid_for_in_any_case():
    dear = pool("h100", "nvidia-h100", 80_000, 40.0, maximum=1)
    assert homes(OFTEN, THRIFTY, rooms=(dear, RTX))[0] == {"h100"}, "half of them are open there"
    for kept, home in ((dear, "rtx"), (replace(dear, minimum=1), "h100")):
        warm = [asked(BIG, RARE)]
        signal = signal_of(snapshot([], [], []), CostModel(), (kept, RTX), warm)
        assert set(signal.preferred.values()) == {home}


def test_demand_that_prefers_seconds_stays():
    assert homes(RARE, HASTY) == ({"h100"}, {"h100"})


def test_workers_within_a_pools_minimum_add_no_cost():
    assert homes(RARE, rooms=(replace(H100, minimum=1), RTX)) == ({"h100"}, {"h100"})


def test_only_workers_with_engines_in_demand_are_retained_in_a_pool_being_given_up():
    relocation = EngineRelocation()
    hot = worker("a", lane(BIG), lane(SMALL), pool="h100", memory_mib=80_000)
    goes = replace(hot, shape=structs.replace(hot.shape, name="b"), draining=True)
    idle = worker("c", pool="h100", memory_mib=80_000)
    for now_s in looks():
        view = replace(snapshot([hot, goes, idle], [], []), now_s=now_s)
        warm = [asked(BIG, RARE), asked(SMALL, RARE)]
        signal = signal_of(view, CostModel(), (H100, RTX), warm, relocation)
    assert set(signal.preferred.values()) == {"rtx"}
    assert signal.backlogs["h100"].warm == 1


def test_workers_are_not_retained_for_engines_without_demand():
    relocation = EngineRelocation()
    relocation.first, relocation.leaving = "rtx", {"h100"}
    hot = worker("w", lane(BIG), pool="h100", memory_mib=80_000)
    warm = [asked(SMALL, RARE)]
    view = replace(snapshot([hot], [], []), now_s=1.0)
    assert signal_of(view, CostModel(), (H100, RTX), warm, relocation).backlogs["h100"].warm == 0


def test_loading_engines_and_engines_on_leaving_workers_do_not_count_as_loaded():
    for hot in (
        worker("w", lane(BIG, load_remaining_s=9.0), pool="rtx", memory_mib=24_000),
        worker("w", lane(BIG), pool="rtx", memory_mib=24_000, draining=True),
        worker("w", lane(SMALL), pool="rtx", memory_mib=24_000),
    ):
        relocation = EngineRelocation()
        relocation.first, relocation.leaving = "rtx", {"h100"}
        view = replace(snapshot([hot], [], []), now_s=1.0)
        warm = [asked(BIG, RARE), asked(SMALL, RARE, since_s=400.0)]
        signal_of(view, CostModel(), (H100, RTX), warm, relocation)
        assert relocation.leaving == {"h100"}


def test_a_pool_without_workers_holds_no_engines():
    assert homes(RARE, rooms=(H100, replace(RTX, maximum=0))) == ({"h100"}, {"h100"})


def test_a_model_that_the_cheaper_pool_cannot_hold_keeps_all_engines_in_place():
    assert homes(RARE, infos=(BIG, model("huge", 40))) == ({"h100"}, {"h100"})


def test_a_pool_too_small_for_all_engines_is_not_a_candidate():
    tiny = pool("tiny", "nvidia-4090", 12_000, 0.1, maximum=1)
    assert homes(RARE, rooms=(H100, tiny)) == ({"h100"}, {"h100"})


def test_a_model_without_recent_demand_does_not_affect_the_choice():
    relocation = EngineRelocation()
    huge = asked(model("huge", 40), RARE, since_s=ARRIVAL_WINDOW_S + 1.0)
    for now_s in looks()[:4]:
        hot = worker("w", lane(SMALL), pool="h100", memory_mib=80_000)
        view = replace(snapshot([hot], [], []), now_s=now_s)
        signal = signal_of(view, CostModel(), (H100, RTX), [asked(SMALL, RARE), huge], relocation)
    assert signal.preferred[SMALL.signature] == "rtx"
