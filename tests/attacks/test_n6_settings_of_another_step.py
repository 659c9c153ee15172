"""Attacker: T2.
Action: submits a step equal to another tenant's, with a timeout, tries or resources that fail it.
Must not happen: the other tenant's step fails, or its error names a setting that is not its own.
"""

from typing import Any

import pytest
from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_core.graph.plan import Resources
from flowmesh_core.machine.settings import Settings

ORDERS = [("attacker", "owner"), ("owner", "attacker")]


def both(world: World, order: tuple[str, str], **settings: Any) -> None:
    for tenant in order:
        own = step("a", **(settings if tenant == "attacker" else {}))
        world.submit(plan(own, namespace=tenant), tenant, share="group-x")


def run_for(world: World, seconds: float) -> None:
    attempt_id = only(world).attempt_id
    world.begin(attempt_id)
    for _ in range(round(seconds / 0.25)):
        world.tick(0.25)
        world.beat()


@pytest.mark.parametrize("order", ORDERS)
def test_a_timeout_ends_only_the_step_that_declares_it(order: tuple[str, str]) -> None:
    world = World()
    world.join("w1")
    both(world, order, timeout_s=2.0)
    world.tick(0.1)
    run_for(world, 5.0)
    failed = world.finals["attacker"]
    assert (failed.phase, failed.reason, failed.paid_nanousd) == ("Failed", "timeout", 0)
    assert "your step's timeout of 2 s" in failed.message
    world.finish(only(world).attempt_id)
    assert world.finals["owner"].phase == "Succeeded"
    assert len(world.executed) == 1


def test_a_sole_subscriber_with_a_timeout_fails_and_its_run_pays() -> None:
    world = World()
    world.join("w1")
    both(world, ("attacker", "owner"), timeout_s=2.0)
    world.submit(plan(step("b", value=1, timeout_s=2.0)), "alone")
    world.join("w2")
    world.tick(0.1)
    [own] = [a for a in world.attempts() if a.params.get("value") == 1]
    world.begin(own.attempt_id)
    for _ in range(9):
        world.tick(0.25)
        world.beat()
    final = world.finals["alone"]
    assert (final.reason, final.paid_nanousd > 1_900_000) == ("timeout", True)


def test_the_timeout_of_a_late_subscriber_starts_when_it_joins() -> None:
    world = World()
    world.join("w1")
    both(world, ("owner", "attacker"))
    world.tick(0.1)
    run_for(world, 4.0)
    late = plan(step("a", timeout_s=2.0), namespace="late")
    world.submit(late, "late", share="group-x")
    for _ in range(7):
        world.tick(0.25)
        world.beat()
    assert "late" not in world.finals
    world.finish(only(world).attempt_id)
    assert world.finals["late"].phase == "Succeeded"


@pytest.mark.parametrize("order", ORDERS)
def test_a_step_limited_to_one_attempt_does_not_end_the_retries_of_another(
    order: tuple[str, str],
) -> None:
    world = World()
    world.join("w1", "w2")
    both(world, order, attempts=1)
    world.tick(0.1)
    world.fail(only(world).attempt_id, "engine")
    assert (world.finals["attacker"].phase, world.finals["attacker"].reason) == ("Failed", "engine")
    world.run()
    assert world.finals["owner"].phase == "Succeeded"


@pytest.mark.parametrize("order", ORDERS)
def test_memory_that_no_worker_has_does_not_stop_a_step_that_needs_less(
    order: tuple[str, str],
) -> None:
    world = World(settings=Settings(unplaceable_after_s=1.0))
    world.join("w1")
    both(world, order, resources=Resources(memory_mib=900 * 1024))
    world.tick(0.1)
    world.tick(2.0)
    assert only(world).memory_mib < 4096
    world.finish(only(world).attempt_id)
    assert {f.phase for f in world.finals.values()} == {"Succeeded"}, "a result is good for all"


def test_a_sole_subscriber_fails_with_its_own_memory_request_if_no_worker_has_enough() -> None:
    world = World(settings=Settings(unplaceable_after_s=1.0))
    world.join("w1")
    large = step("a", resources=Resources(memory_mib=900 * 1024))
    uid = world.submit(plan(large))
    world.tick(0.1)
    world.tick(2.0)
    world.tick(2.0)
    assert (world.finals[uid].reason, "921600 MiB" in world.finals[uid].message) == (
        "unplaceable",
        True,
    )


@pytest.mark.parametrize("order", ORDERS)
def test_of_incomparable_requirements_one_that_a_worker_meets_is_used(
    order: tuple[str, str],
) -> None:
    world = World(settings=Settings(unplaceable_after_s=60.0))
    world.join("w1", labels={"zone": "a"})
    for tenant in order:
        labels = {"zone": "a"} if tenant == "owner" else {"rack": "7"}
        own = step("a", resources=Resources(labels=labels))
        world.submit(plan(own, namespace=tenant), tenant, share="group-x")
    for _ in range(5):
        world.tick(2.5)
        world.beat()
    world.finish(only(world).attempt_id)
    assert {f.phase for f in world.finals.values()} == {"Succeeded"}


def test_failures_on_a_worker_that_a_step_excludes_do_not_count_for_it() -> None:
    world = World()
    world.join("w1")
    picky = step("a", attempts=1, resources=Resources(labels={"zone": "a"}))
    world.submit(plan(picky, namespace="owner"), "owner", share="group-x")
    both(world, ("attacker", "attacker"), attempts=1)
    world.tick(0.1)
    world.fail(only(world).attempt_id, "bad-input")
    assert world.finals["attacker"].phase == "Failed"
    world.join("w2", labels={"zone": "a"})
    world.tick(0.1)
    assert world.worker_of(only(world).attempt_id) == "w2"
    world.finish(only(world).attempt_id)
    assert world.finals["owner"].phase == "Succeeded"


def test_a_step_gets_an_eligible_attempt_beside_a_hanging_ineligible_one() -> None:
    world = World(settings=Settings(watchdog_s=60.0))
    world.join("w1")
    both(world, ("attacker", "attacker"))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    picky = step("a", resources=Resources(labels={"zone": "a"}))
    world.submit(plan(picky, namespace="owner"), "owner", share="group-x")
    world.join("w2", labels={"zone": "a"})
    for _ in range(6):
        world.tick(2.5)
        world.beat()
    [replica] = world.held["w2"]
    world.finish(replica)
    assert {f.phase for f in world.finals.values()} == {"Succeeded"}
