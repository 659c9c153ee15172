"""A tenant of greater weight gets more of what the workers cost."""

import pytest
from tests.flowmesh_core.machine.world import NOOP, SOLO, World, plan, step

from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.machine.events import WeightsChanged
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.settings import Settings


@pytest.mark.parametrize("heavy", ["team-a", "team-b"])
def test_a_tenant_of_weight_four_is_served_far_more_than_one_of_weight_one(heavy: str) -> None:
    world = World(settings=Settings(watchdog_s=1e9, tenant_weights={heavy: 4.0}))
    world.join("w1")
    for team in ("team-a", "team-b"):
        steps = (step(f"s{n}", uses=SOLO, v=f"{team}{n}") for n in range(150))
        world.submit(plan(*steps, namespace=team), team)
    world.run(lambda w: len(w.executed) >= 150)
    paid = {uid: run.paid_nanousd for uid, run in world.machine.state.runs.items()}
    (light,) = {"team-a", "team-b"} - {heavy}
    assert paid[heavy] > 2 * paid[light] > 0


def test_two_tenants_of_weights_one_and_three_get_one_to_three_of_a_saturated_pool() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w1")
    world.apply(WeightsChanged({"team-b": 3.0}))
    for team in ("team-a", "team-b"):
        steps = (step(f"s{n}", uses=SOLO, v=f"{team}{n}") for n in range(400))
        world.submit(plan(*steps, namespace=team), team)
    runs = world.machine.state.runs
    # Until the cost model has learned how short the actions are, their reservations decide.
    world.run(lambda w: len(w.executed) >= 200)
    before = {uid: run.paid_nanousd for uid, run in runs.items()}
    world.run(lambda w: len(w.executed) >= 500)
    got = {uid: run.paid_nanousd - before[uid] for uid, run in runs.items()}
    assert 2.7 < got["team-b"] / got["team-a"] < 3.3


@pytest.mark.parametrize("engine", [SOLO, NOOP])
def test_weights_hold_in_a_pool_without_a_price(engine: EngineContract) -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    world.join("w1", price_nanousd_per_hour=0)
    world.apply(WeightsChanged({"team-b": 3.0}))
    for team in ("team-a", "team-b"):
        steps = (step(f"s{n}", uses=engine, v=f"{team}{n}") for n in range(400))
        world.submit(plan(*steps, namespace=team), team)
    runs = world.machine.state.runs
    world.run(lambda w: len(w.executed) >= 200)
    before = {uid: done(run) for uid, run in runs.items()}
    world.run(lambda w: len(w.executed) >= 500)
    got = {uid: done(run) - before[uid] for uid, run in runs.items()}
    assert 2.7 < got["team-b"] / got["team-a"] < 3.3
    assert world.machine.state.book == FabricAccount(executed=len(world.executed))


def done(run: Run) -> int:
    return sum(isinstance(line, AttemptLine) for line in run.lines)


def test_changed_weights_replace_the_previous_ones() -> None:
    world = World(settings=Settings(watchdog_s=1e9, tenant_weights={"team-c": 2.0}))
    world.apply(WeightsChanged({"team-b": 3.0}))
    assert world.machine.state.fair.weights == {"team-b": 3.0, "team-c": 2.0}
    world.apply(WeightsChanged({"team-a": 5.0}))
    assert world.machine.state.fair.weights == {"team-a": 5.0, "team-c": 2.0}
