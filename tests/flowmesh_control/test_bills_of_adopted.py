"""Attempts that outlive their control plane are charged as others are; the books still agree."""

from typing import Any

import pytest
from tests.flowmesh_core.machine.world import PRICE, World, outputs_of, plan, step

from flowmesh_api.v1.why import HitLine
from flowmesh_control.records.accounts import bring_up_to_date, capture
from flowmesh_core.protocol.messages import AttemptEnd
from flowmesh_core.protocol.results import Usage

SECOND = PRICE // 3600


def crashed(*steps: str, ran_s: float = 2.0) -> World:
    """A world whose worker runs these steps, at the moment that its control plane dies."""
    world = World()
    world.join("w1")
    world.submit(plan(*(step(name, v=name) for name in steps)), "run-1")
    world.tick(0.0)
    assert len(world.attempts()) == len(steps)
    for assignment in world.attempts():
        world.begin(assignment.attempt_id)
    world.tick(ran_s)
    return world


def restarted(before: World, *, at_s: float, lines: Any = ()) -> World:
    """The next epoch, which knows what the last record of the accounts says."""
    state = before.machine.state
    opening = bring_up_to_date(capture(state, {"run-1": 0}, before.now), lines)
    after = World(
        epoch=2,
        now=at_s,
        recovering_until_s=at_s + 3.0,
        cache=before.cache,
        accounts={
            "book": opening.book,
            "billed": opening.billed,
            "unsettled": opening.unsettled,
        },
    )
    after.incarnations, after.held = before.incarnations, before.held
    return after


def end(world: World, number: int, run_s: float) -> AttemptEnd:
    """What the worker reports of an attempt that ended while nobody looked."""
    assignment = list(world.held["w1"].values())[number]
    del world.held["w1"][assignment.attempt_id]
    usage = Usage(units=1, run_s=run_s)
    return AttemptEnd(
        assignment.attempt_id, assignment.action_id, outputs=outputs_of(assignment), usage=usage
    )


def books(world: World) -> tuple[int, int, int]:
    book = world.machine.state.book
    assert book.unsettled_nanousd == 0
    assert book.fabric_nanousd >= 0
    return book.bill_nanousd, book.receipts_nanousd, book.fabric_nanousd


@pytest.mark.parametrize("known_first", [True, False])
def test_an_attempt_that_ended_while_the_control_plane_was_down_is_paid_by_its_run(
    known_first: bool,
) -> None:
    after = restarted(crashed("a"), at_s=1020.0)
    ended = (end(after, 0, run_s=5.0),)
    if known_first:
        after.submit(plan(step("a", v="a")), "run-1")
    after.hello("w1", started_s=1000.0, ended=ended)
    if not known_first:
        after.submit(plan(step("a", v="a")), "run-1")
    paid = after.finals["run-1"].paid_nanousd
    assert paid == 5 * SECOND
    assert books(after) == (20 * SECOND, paid, 15 * SECOND)


def test_a_later_hit_saves_what_the_adopted_attempt_cost() -> None:
    after = restarted(crashed("a"), at_s=1020.0)
    ended = (end(after, 0, run_s=5.0),)
    after.submit(plan(step("a", v="a")), "run-1")
    after.hello("w1", started_s=1000.0, ended=ended)
    after.submit(plan(step("a", v="a")), "run-2")
    (hit,) = [la for la in after.ended_runs["run-2"].lines if isinstance(la, HitLine)]
    assert hit.saved_nanousd == 5 * SECOND
    assert after.finals["run-2"].paid_nanousd == 0


def test_an_attempt_that_still_runs_is_charged_for_all_of_its_time() -> None:
    after = restarted(crashed("a", ran_s=2.0), at_s=1010.0)
    after.hello("w1", started_s=1000.0)
    after.submit(plan(step("a", v="a")), "run-1")
    after.tick(4.0)
    (running,) = after.attempts()
    after.finish(running.attempt_id, usage=Usage(units=1, run_s=14.0))
    paid = after.finals["run-1"].paid_nanousd
    assert paid == 14 * SECOND
    assert books(after) == (14 * SECOND, paid, 0)


def test_attempts_that_ran_concurrently_share_the_elapsed_time() -> None:
    after = restarted(crashed("a", "b"), at_s=1010.0)
    ended = (end(after, 0, run_s=9.0), end(after, 0, run_s=9.0))
    after.submit(plan(step("a", v="a"), step("b", v="b")), "run-1")
    after.hello("w1", started_s=1000.0, ended=ended)
    paid = after.finals["run-1"].paid_nanousd
    assert 9 * SECOND <= paid <= 10 * SECOND
    assert books(after) == (10 * SECOND, paid, 10 * SECOND - paid)


def test_an_attempt_that_no_run_needs_any_more_is_paid_by_the_fabric_account() -> None:
    after = restarted(crashed("a"), at_s=1010.0)
    after.hello("w1", started_s=1000.0, ended=(end(after, 0, run_s=5.0),))
    after.tick(4.0)
    assert books(after) == (14 * SECOND, 0, 14 * SECOND)
    assert after.machine.state.resumed_charges == {}
    record = capture(after.machine.state, {}, after.now)
    assert record.unsettled == {}


def test_the_accrued_cost_of_an_attempt_survives_two_crashes() -> None:
    after = restarted(crashed("a", ran_s=2.0), at_s=1005.0)
    again = restarted(after, at_s=1010.0)
    again.hello("w1", started_s=1000.0)
    again.submit(plan(step("a", v="a")), "run-1")
    (running,) = again.attempts()
    again.finish(running.attempt_id, usage=Usage(units=1, run_s=10.0))
    paid = again.finals["run-1"].paid_nanousd
    assert paid == 10 * SECOND
    assert books(again) == (10 * SECOND, paid, 0)
