"""The fabric, and no run, pays for the time in which the control plane stood still."""

import pytest
from tests.flowmesh_core.machine.world import PRICE, World, only, plan, step

from flowmesh_core.machine.events import ControlStalled
from flowmesh_core.protocol.results import Usage


def stall(world: World, seconds: float) -> None:
    world.now += seconds
    world.apply(ControlStalled())
    world.beat()


def cost(seconds: float) -> int:
    return int(PRICE * seconds / 3600)


@pytest.mark.parametrize(
    ("run_s", "paid_s"),
    [(1.0, 2.0), (32.0, 32.0), (500.0, 62.0)],
    ids=["it was over before", "it ended in between", "reports more than there was"],
)
def test_a_run_pays_for_a_stall_no_more_than_its_worker_reports(
    run_s: float, paid_s: float, world: World
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    attempt = only(world).attempt_id
    world.begin(attempt)
    world.tick(1.0)
    stall(world, 60.0)
    world.tick(1.0)
    world.finish(attempt, usage=Usage(units=1, run_s=run_s))
    world.tick(0.1)
    paid = world.finals[uid].paid_nanousd
    assert paid == pytest.approx(cost(paid_s), rel=0.01, abs=cost(0.2))
    book = world.machine.state.book
    assert book.receipts_nanousd + book.fabric_nanousd == book.bill_nanousd


def test_work_lost_in_a_stall_is_paid_by_the_fabric_account(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    stall(world, 60.0)
    world.lose("w1")
    world.join("w2")
    world.run()
    assert world.finals[uid].paid_nanousd < cost(5.0)


def test_concurrent_attempts_pay_no_more_than_their_part_of_the_stall(world: World) -> None:
    world.join("w1")
    uids = [world.submit(plan(step("a", n=n))) for n in range(4)]
    world.tick(0.1)
    held = [a.attempt_id for a in world.attempts()]
    assert len(held) == 4
    for attempt in held:
        world.begin(attempt)
    stall(world, 60.0)
    for attempt in held:
        world.finish(attempt, usage=Usage(units=1, run_s=60.0))
    world.tick(0.1)
    assert sum(world.finals[uid].paid_nanousd for uid in uids) <= cost(61.0)
