"""A pool whose workers do not come: what another can run does not wait for them."""

from dataclasses import replace

import pytest
from msgspec import structs
from tests.flowmesh_core.autoscaling.test_preferred_pools import (
    FAST,
    H100,
    RTX,
    asked,
    homes,
    model,
)
from tests.flowmesh_core.placement.builders import action, lane, snapshot, worker

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.pool_supply import PoolSupply
from flowmesh_core.autoscaling.settings import (
    SUPPLY_PATIENCE_MIN_S,
    SUPPLY_PATIENCE_STARTS,
    SUPPLY_RETRY_S,
)
from flowmesh_core.costmodel import CostModel

START_S = 10.0


class Asked:
    """One pool in virtual time."""

    def __init__(self, start_s: float = START_S) -> None:
        self.supply, self.now_s, self.start_s = PoolSupply(), 1000.0, start_s

    def after(self, seconds: float, living: int, asked: int) -> int | None:
        """What it can have when that has been seen every 10 s for so long."""
        most = None
        for _ in range(int(seconds / 10)):
            self.now_s += 10.0
            most = self.supply.most(living, asked, self.start_s, self.now_s)
        return most


@pytest.mark.parametrize(
    ("start_s", "wait_s"),
    [
        (START_S, SUPPLY_PATIENCE_MIN_S),
        (SUPPLY_PATIENCE_MIN_S, SUPPLY_PATIENCE_STARTS * SUPPLY_PATIENCE_MIN_S),
    ],
)
def test_a_worker_that_does_not_arrive_for_long_is_no_longer_expected(start_s, wait_s):
    pool = Asked(start_s)
    assert pool.after(10.0, living=2, asked=2) is None
    assert pool.after(wait_s - 10.0, living=2, asked=3) is None
    assert pool.after(10.0, living=2, asked=3) == 2


def test_the_wait_starts_when_more_workers_are_requested_than_exist():
    pool = Asked()
    assert pool.after(10 * SUPPLY_PATIENCE_MIN_S, living=2, asked=2) is None
    assert pool.after(SUPPLY_PATIENCE_MIN_S - 10.0, living=2, asked=5) is None
    assert pool.after(10.0, living=2, asked=5) == 2


def test_a_worker_that_is_lost_is_waited_for_like_any_other():
    pool = Asked()
    pool.after(10.0, living=2, asked=2)
    assert pool.after(SUPPLY_PATIENCE_MIN_S - 10.0, living=1, asked=2) is None
    assert pool.after(10.0, living=1, asked=2) == 1


def test_a_returning_or_short_lived_worker_does_not_count_as_an_additional_one():
    pool = Asked()
    pool.after(10.0, living=2, asked=2)
    assert pool.after(SUPPLY_PATIENCE_MIN_S, living=2, asked=3) == 2
    assert pool.after(10.0, living=1, asked=3) == 1
    assert pool.after(10.0, living=2, asked=3) == 2
    assert pool.after(10.0, living=3, asked=3) is None
    crashing = Asked()
    for _ in range(5):
        crashing.after(30.0, living=1, asked=2)
        most = crashing.after(60.0, living=0, asked=2)
    assert most == 0


def test_workers_that_a_pool_had_and_released_count_as_available():
    pool = Asked()
    pool.after(10.0, living=5, asked=5)
    assert pool.after(SUPPLY_PATIENCE_MIN_S, living=5, asked=6) == 5
    assert pool.after(10.0, living=2, asked=2) == 5


def test_an_arriving_worker_ends_the_shortage():
    pool = Asked()
    assert pool.after(2 * SUPPLY_PATIENCE_MIN_S, living=0, asked=2) == 0
    assert pool.after(10.0, living=1, asked=2) is None
    assert pool.after(SUPPLY_PATIENCE_MIN_S, living=1, asked=2) == 1


def test_a_short_pool_without_further_requests_is_tried_again_after_a_while():
    pool = Asked()
    assert pool.after(SUPPLY_PATIENCE_MIN_S, living=0, asked=1) is None, (
        "it was seen for less than that"
    )
    assert pool.after(10.0, living=0, asked=1) == 0
    assert pool.after(SUPPLY_RETRY_S - 10.0, living=0, asked=0) == 0
    assert pool.after(10.0, living=0, asked=0) is None


def test_a_clock_that_is_set_back_does_not_extend_the_wait():
    pool = Asked()
    pool.after(10.0, living=0, asked=1)
    pool.now_s = 0.0
    assert pool.after(SUPPLY_PATIENCE_MIN_S + 10.0, living=0, asked=1) == 0
    pool.now_s = -1e6
    assert pool.after(SUPPLY_RETRY_S, living=0, asked=0) == 0
    assert pool.after(10.0, living=0, asked=0) is None


SHORT = replace(H100, supply=0)


def backlogs(*pools, workers=(), actions=3):
    info = model("m")
    ready = [action(f"a{n}", info, weights=FAST) for n in range(actions)]
    return signal_of(snapshot(list(workers), ready, [info]), CostModel(), pools).backlogs


def test_work_for_a_pool_short_of_workers_goes_to_another_pool_that_can_run_it():
    assert backlogs(H100, RTX)["h100"].actions == 3
    found = backlogs(SHORT, RTX)
    assert (found["h100"].actions, found["rtx"].actions) == (0, 3)


def test_work_that_no_other_pool_can_run_still_counts_in_the_short_pool():
    assert backlogs(SHORT)["h100"].actions == 3
    tiny = replace(RTX, shape=worker("w", pool="rtx", memory_mib=1_000).shape)
    assert backlogs(SHORT, tiny)["h100"].actions == 3
    found = backlogs(SHORT, replace(RTX, supply=0))
    assert found["h100"].actions == 3, "and where there is none anywhere, of the best"


def test_if_all_pools_are_short_each_is_asked_until_a_worker_arrives():
    short = replace(RTX, supply=0)
    found = backlogs(SHORT, short)
    assert [found[p].substitutable for p in ("h100", "rtx")] == [True, True]
    calm = PoolSizer(stabilization_s=1.0)
    asked = [calm.sizes(short, found["rtx"], 1, now_s).workers for now_s in (0.0, 10.0)]
    assert asked == [1, 1]
    hot = worker("w", pool="h100", memory_mib=80_000)
    one = backlogs(replace(H100, supply=1), short, workers=[hot])["rtx"]
    assert not one.substitutable
    assert calm.sizes(short, one, 1, 20.0).workers == 0
    assert not backlogs(H100, RTX)["rtx"].substitutable


def test_a_pool_with_a_maximum_of_zero_does_not_replace_a_pool_short_of_workers():
    found = backlogs(replace(H100, maximum=0), replace(RTX, supply=0))
    assert (found["h100"].actions, found["rtx"].actions) == (0, 3)


def test_engines_prefer_pools_that_can_get_workers():
    warm = [asked(model("x")), asked(model("y"))]
    assert homes(warm, pools=(SHORT, RTX))[0] == {"x": "rtx", "y": "rtx"}
    one = replace(H100, supply=1, shape=structs.replace(H100.shape, device_memory_mib=20_000))
    hot = worker("w", lane(model("x")), pool="h100", memory_mib=20_000)
    found, signal = homes(warm, hot, pools=(one, RTX))
    assert sorted(found.values()) == ["h100", "rtx"]
    assert signal.backlogs["h100"].warm == 1
