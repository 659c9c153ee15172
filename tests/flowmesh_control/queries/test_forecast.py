"""What forecasts count on, and the workflows that they refuse."""

import asyncio

import pytest
from tests.flowmesh_core.machine.world import PRICE, World, plan, shape, step

from flowmesh_control.errors import PlanRefusedError
from flowmesh_control.evaluators.conditions import InlineConditions
from flowmesh_control.queries import planner
from flowmesh_control.queries.planner import Planner
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.machine.events import ReservedPoolsChanged
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.ports import Record

NANO = 1
AMPLE = 10**12


class SilentRecords(MemoryRecords):
    """A store that does not answer."""

    async def read(self, key: str) -> Record | None:
        """Waits for ever."""
        return await asyncio.Event().wait() and None


def planner_of(world: World, *pools: PoolView, records: MemoryRecords | None = None) -> Planner:
    return Planner(
        state=world.machine.state,
        cache=ActionCache(records or MemoryRecords(), clock=lambda: world.now),
        clock=lambda: world.now,
        quarantine_salts=dict,
        conditions=InlineConditions(),
        pools=lambda: pools,
    )


def compiled(budget_nanousd: int = 0, deadline_s: float = 0.0) -> Compiled:
    terms = plan(step("a"), budget_nanousd=budget_nanousd, deadline_s=deadline_s)
    return Compiled({}, terms, plan_scopes([], "team-a"), {}, {})


def pool(name: str, price: int = PRICE) -> PoolView:
    return PoolView(name, shape(name, pool=name, price_nanousd_per_hour=price))


async def test_a_pool_without_workers_counts_as_the_worker_that_it_would_start() -> None:
    found = await planner_of(World(), pool("cheap")).forecast(compiled())
    assert (found.steps[0].worker, found.steps[0].detail) == ("cheap", "")
    assert found.nanousd > 0
    nothing = await planner_of(World()).forecast(compiled())
    assert (nothing.steps[0].worker, nothing.nanousd) == ("", 0)


async def test_pools_without_workers_do_not_count_where_a_connected_worker_can_run_the_work() -> (
    None
):
    world = World()
    world.join("w1")
    alone = await planner_of(world).forecast(compiled())
    beside = await planner_of(world, pool("dear", 1000 * PRICE)).forecast(compiled())
    assert beside == alone


async def test_a_pool_that_is_reserved_for_others_does_not_count() -> None:
    world = World()
    world.apply(ReservedPoolsChanged({"theirs": frozenset({"team-b"})}))
    found = await planner_of(world, pool("theirs")).forecast(compiled())
    assert (found.steps[0].worker, found.nanousd) == ("", 0)


async def test_terms_that_cannot_be_met_are_refused_with_the_figures() -> None:
    checked = planner_of(World(), pool("cheap"))
    figure = r"expected to cost at least \$0\.\d+, and the budget is \$0\.000000001; raise it"
    with pytest.raises(PlanRefusedError, match=rf"^w: spec\.budgetUsd: {figure}"):
        await checked.check_terms(compiled(budget_nanousd=NANO))
    with pytest.raises(PlanRefusedError, match=r"s, and the deadline is 0 s after"):
        await checked.check_terms(compiled(deadline_s=1e-9))
    await checked.check_terms(compiled(budget_nanousd=AMPLE, deadline_s=1e9))


async def test_workers_that_cost_nothing_take_as_long_as_others() -> None:
    found, free = [
        await planner_of(World(), pool("cheap", price)).forecast(compiled()) for price in (PRICE, 0)
    ]
    assert free.nanousd == free.high_nanousd == 0
    assert 0 < free.low_seconds < free.seconds < free.high_seconds
    times = (found.low_seconds, found.seconds, found.high_seconds)
    assert (free.low_seconds, free.seconds, free.high_seconds) == pytest.approx(times)


async def test_a_workflow_without_terms_is_not_forecast() -> None:
    await planner_of(World(), pool("cheap"), records=SilentRecords()).check_terms(compiled())


async def test_a_workflow_whose_forecast_takes_too_long_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "CHECK_S", 0.0)
    silent = planner_of(World(), pool("cheap"), records=SilentRecords())
    await silent.check_terms(compiled(budget_nanousd=NANO))
