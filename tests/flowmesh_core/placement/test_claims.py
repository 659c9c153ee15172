"""How long an action waits before a worker that other instances keep busy is reserved for it."""

import pytest
from tests.flowmesh_core.placement.builders import (
    NOW_S,
    action,
    lane,
    signature,
    snapshot,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.placement.action_groups import groups_of
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.reservations import reserve_worker

GB = 10**9
BUSY = signature("busy", memory_mib=5_000, capacity=4)
SLOW = signature("slow", memory_mib=5_000, components={"model": 40 * GB}, work_unit="tokens")
FAST = signature("fast", memory_mib=5_000, engine="data.sql")
HELD = worker("w", lane(BUSY, assigned=1, remaining_s=1.0))


def load_s(info) -> float:
    """How long an engine of the signature takes to load on the worker."""
    view = snapshot([HELD], [action("one", info)], [info])
    (group,) = groups_of(view)
    return SchedulingCycle(view, CostModel()).load_s(group, 0)


def claims(info, waited_s: float) -> bool:
    """Whether an action that has waited so long claims the worker."""
    one = action("one", info, ready_s=NOW_S - waited_s)
    view = snapshot([HELD], [one], [info])
    tick = SchedulingCycle(view, CostModel())
    (group,) = groups_of(view)
    reserve_worker(tick, group, one)
    return tick.accounts[0].reserved


@pytest.mark.parametrize(("loads", "claimed"), [(1.9, False), (2.1, True)])
def test_an_action_claims_a_worker_once_it_has_waited_twice_as_long_as_its_engine_loads(
    loads: float, claimed: bool
) -> None:
    assert load_s(SLOW) > 5.0
    assert claims(SLOW, loads * load_s(SLOW)) is claimed


@pytest.mark.parametrize(("waited_s", "claimed"), [(4.9, False), (5.1, True)])
def test_an_action_whose_engine_loads_at_once_waits_five_seconds_before_it_claims_a_worker(
    waited_s: float, claimed: bool
) -> None:
    assert 2 * load_s(FAST) < 4.9
    assert claims(FAST, waited_s) is claimed
