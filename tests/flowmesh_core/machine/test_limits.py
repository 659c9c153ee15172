"""Deadlines, budgets, what no worker can take, and suspension."""

import dataclasses

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.machine.world import ASK, World, plan, step

from flowmesh_core.machine.events import PlacementDecided
from flowmesh_core.machine.settings import Settings
from flowmesh_core.placement.decide import decide
from flowmesh_core.protocol.messages import EngineVariant


def test_a_deadline_that_passes_fails_the_run(world: World) -> None:
    uid = world.submit(plan(step("a"), deadline_s=30.0))
    world.tick(29)
    assert uid not in world.finals
    world.tick(2)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "deadline")


def test_a_budget_that_does_not_cover_the_next_action_fails_the_run(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a"), budget_nanousd=1))
    world.tick(0.1)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "budget")
    assert not world.attempts()


def test_an_action_continues_while_one_of_its_runs_can_pay(world: World) -> None:
    world.join("w1")
    poor = world.submit(plan(step("a"), budget_nanousd=1), share="group-x")
    rich = world.submit(plan(step("a"), namespace="team-b"), share="group-x")
    world.run()
    assert world.finals[rich].phase == "Succeeded"
    assert (world.finals[poor].phase, world.finals[poor].reason) == ("Failed", "budget")
    assert world.finals[poor].paid_nanousd == 0


@pytest.mark.parametrize(("budget_nanousd", "placed"), [(1, 0), (2, 1)])
def test_an_indivisible_share_of_an_actions_cost_is_rounded_up_against_the_budget(
    world: World, budget_nanousd: int, placed: int
) -> None:
    world.join("w1")
    for tenant in ("team-a", "team-b"):
        made = plan(step("a"), namespace=tenant, budget_nanousd=budget_nanousd)
        world.submit(made, share="group-x")
    decision = decide(world.machine.snapshot(world.now), world.machine.state.model)
    (placement,) = decision.placements
    odd = replace(placement, reserve_nanousd=(3,))
    world.apply(PlacementDecided(dataclasses.replace(decision, placements=(odd,))))
    assert len(world.attempts()) == placed


def test_an_action_that_no_worker_can_take_fails_with_the_reason_on_a_fixed_fleet() -> None:
    world = World(Settings(unplaceable_after_s=5.0))
    world.join("w1", engines={})
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    step_status = world.machine.state.runs[uid].steps["a"]
    assert step_status.wait_reason == "engine-not-offered"
    world.beat()
    world.tick(6)
    world.tick(0.1)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "unplaceable")


def test_an_engine_that_a_fixed_fleet_does_not_serve_fails_once_its_workers_have_joined() -> None:
    world = World(Settings(unplaceable_after_s=60.0))
    asked = replace(step("a", uses=ASK), fields={"dtype": "bfloat16"})
    uid = world.submit(plan(asked))
    world.tick(0.1)
    world.join("w1", variants=(EngineVariant(ASK.name, dtypes=("auto", "float32")),))
    world.tick(0.3)
    waiting = world.machine.state.runs[uid].steps["a"]
    assert "set with.dtype: float32, or add a pool that does" in waiting.wait_detail
    world.tick(2.1)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "unplaceable")


def test_a_suspended_run_waits_until_it_is_resumed(world: World) -> None:
    from flowmesh_core.machine.events import Amended

    world.join("w1")
    uid = world.submit(plan(step("a"), suspend=True))
    world.tick(0.1)
    assert not world.attempts()
    world.apply(Amended(uid, {"suspend": False}))
    world.run()
    assert world.finals[uid].phase == "Succeeded"
