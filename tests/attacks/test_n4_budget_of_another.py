"""Attacker: T2.
Action: has the same work done as a tenant whose budget does not suffice, and can pay alone.
Must not happen: the other tenant is charged more than its budget.
"""

import pytest
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_core.graph.plan import Plan

BUDGET_NANOUSD = 10


def of(tenant: str, budget_nanousd: int = 0) -> Plan:
    return plan(step("a"), namespace=tenant, budget_nanousd=budget_nanousd)


def finish_after(world: World, seconds: float) -> None:
    [attempt] = world.attempts()
    world.begin(attempt.attempt_id)
    world.now += seconds
    world.finish(attempt.attempt_id)


@pytest.mark.parametrize("poor_first", [True, False])
def test_a_run_is_never_charged_for_a_part_that_its_budget_does_not_cover(poor_first: bool) -> None:
    world = World()
    world.join("w1")
    order = [("owner", BUDGET_NANOUSD), ("attacker", 0)]
    for tenant, budget in order if poor_first else reversed(order):
        world.submit(of(tenant, budget), tenant, share="group-x")
    world.tick(0.1)
    finish_after(world, 2.5)
    assert (world.finals["owner"].phase, world.finals["owner"].reason) == ("Failed", "budget")
    assert world.finals["owner"].paid_nanousd == 0
    assert world.finals["attacker"].phase == "Succeeded"
    assert world.finals["attacker"].paid_nanousd == 2_500_000


def test_a_run_that_joins_work_under_way_pays_no_more_than_its_budget() -> None:
    world = World()
    world.join("w1")
    world.submit(of("attacker"), "attacker", share="group-x")
    world.tick(0.1)
    world.submit(of("owner", BUDGET_NANOUSD), "owner", share="group-x")
    finish_after(world, 2.5)
    assert world.finals["owner"].paid_nanousd == 0
    assert world.finals["attacker"].paid_nanousd == 2_500_000


@pytest.mark.parametrize("joins_late", [False, True])
def test_a_run_whose_budget_covers_its_part_shares_the_work(joins_late: bool) -> None:
    world = World()
    world.join("w1")
    world.submit(of("attacker"), "attacker", share="group-x")
    if joins_late:
        world.tick(0.1)
    world.submit(of("owner", 2_000_000), "owner", share="group-x")
    world.tick(0.1)
    finish_after(world, 2.5)
    assert {f.phase for f in world.finals.values()} == {"Succeeded"}
    assert {f.paid_nanousd for f in world.finals.values()} == {1_250_000}
