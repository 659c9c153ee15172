"""Attacker: T2.
Action: asks first for the result that another tenant wants, and accepts older or only newer ones.
Must not happen: the other gets a result older than its ``maxAge``, or one that it may not read.
"""

import pytest
from tests.flowmesh_core.machine.world import MAP, World, dataset, plan, rows_of, step

from flowmesh_core.graph.plan import Cache, Plan

SHARE = "group-x"


def of(tenant: str, max_age_s: float) -> Plan:
    return plan(step("a", cache=Cache(max_age_s=max_age_s)), namespace=tenant)


def an_old_result(world: World, made: Plan, **more: object) -> None:
    world.join("w1")
    world.submit(made, "earlier", **more)  # type: ignore[arg-type] - the artifacts of the run
    world.run()
    world.lose("w1")
    world.now += 1000.0
    world.join("w2")


@pytest.mark.parametrize("strict_first", [True, False])
def test_each_run_gets_a_result_of_an_age_that_it_accepts(strict_first: bool) -> None:
    world = World()
    an_old_result(world, of("attacker", 0.0), share=SHARE)
    world.mute_store = True
    order = [("owner", 100.0), ("attacker", 0.0)]
    for tenant, max_age_s in order if strict_first else reversed(order):
        world.submit(of(tenant, max_age_s), tenant, share=SHARE)
    world.answer()
    assert world.finals["attacker"].hits == 1, "any age will do"
    assert "owner" not in world.finals, "the result is too old for it"
    world.run()
    final = world.finals["owner"]
    assert (final.phase, final.executed, final.hits) == ("Succeeded", 1, 0)
    [found] = world.cache.values()
    assert (found.generation, found.created_s > 1900.0) == (2, True)


def test_a_run_that_accepts_the_old_result_uses_it_while_another_run_replaces_it() -> None:
    world = World()
    an_old_result(world, of("attacker", 0.0), share=SHARE)
    world.submit(of("owner", 100.0), "owner", share=SHARE)
    world.tick(0.1)
    [attempt] = world.attempts()
    world.submit(of("attacker", 0.0), "attacker", share=SHARE)
    assert world.finals["attacker"].hits == 1
    world.fail(attempt.attempt_id, "bad-input")
    assert world.finals["owner"].phase == "Failed"
    assert world.finals["attacker"].phase == "Succeeded"


@pytest.mark.parametrize("strict_first", [True, False])
def test_each_run_gets_a_step_level_result_of_an_age_that_it_accepts(strict_first: bool) -> None:
    rows = dataset("one", "two")

    def mapped(tenant: str, max_age_s: float) -> Plan:
        cache = Cache(max_age_s=max_age_s)
        return plan(step("a", rows_of(rows), uses=MAP, cache=cache), namespace=tenant)

    world = World()
    an_old_result(world, mapped("attacker", 0.0), share=SHARE, artifacts=[rows])
    world.mute_store = True
    order = [("owner", 100.0), ("attacker", 0.0)]
    for tenant, max_age_s in order if strict_first else reversed(order):
        world.submit(mapped(tenant, max_age_s), tenant, share=SHARE, artifacts=[rows])
    world.answer()
    world.run()
    assert world.finals["attacker"].executed == 0
    assert (world.finals["owner"].hits, world.finals["owner"].executed) == (0, 2)


def test_a_result_in_one_tenants_private_scope_is_not_given_to_another_tenant() -> None:
    world = World()
    an_old_result(world, of("owner", 0.0))
    world.mute_store = True
    world.submit(of("owner", 0.0), "owner", share=SHARE)
    world.submit(of("attacker", 0.0), "attacker", share=SHARE)
    world.answer()
    assert world.finals["owner"].hits == 1
    assert "attacker" not in world.finals
    world.run()
    assert world.finals["attacker"].executed == 1
