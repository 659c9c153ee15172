"""After a restart nothing runs again that runs or has ended; the clock may step."""

import pytest
from tests.flowmesh_core.machine.world import (
    MAP,
    SOLO,
    World,
    after,
    dataset,
    only,
    outputs_of,
    plan,
    rows_of,
    step,
)

from flowmesh_api.v1.receipts import Receipt, ReceiptLine
from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.why import HitLine
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.protocol.messages import AttemptEnd


def test_after_a_restart_finished_and_running_attempts_are_adopted_and_not_repeated() -> None:
    before = World()
    before.join("w1")
    made = plan(step("a", value=1), step("b", value=2))
    before.submit(made, "run-1")
    before.tick(0.1)
    done, running = before.attempts()
    after_crash = World(epoch=2, recovering_until_s=1003.0, cache=before.cache, now=1001.0)
    after_crash.incarnations = before.incarnations
    after_crash.held = {"w1": {running.attempt_id: running}}
    after_crash.submit(made, "run-1")

    end = AttemptEnd(done.attempt_id, done.action_id, outputs=outputs_of(done))
    after_crash.hello("w1", started_s=1000.0, ended=(end,))
    after_crash.tick(3.0)
    assert [a.attempt_id for a in after_crash.attempts()] == [running.attempt_id]
    after_crash.finish(running.attempt_id)
    assert after_crash.finals["run-1"].phase == "Succeeded"
    assert len(after_crash.publications) == 2


def test_an_attempt_that_failed_before_its_adoption_is_not_adopted() -> None:
    """The store is slow after a restart; meanwhile what the worker still ran has failed."""
    before = World()
    before.join("w1")
    made = plan(step("a"))
    before.submit(made, "run-1")
    before.tick(0.1)
    running = only(before)
    after_crash = World(epoch=2, recovering_until_s=1003.0, now=1001.0)
    after_crash.incarnations = before.incarnations
    after_crash.held = {"w1": {running.attempt_id: running}}
    after_crash.mute_store = True
    after_crash.submit(made, "run-1")
    after_crash.hello("w1", started_s=1000.0)
    after_crash.fail(running.attempt_id, "out-of-memory")
    after_crash.answer()
    after_crash.tick(3.0)
    assert only(after_crash).attempt_id != running.attempt_id
    after_crash.run()
    assert after_crash.finals["run-1"].phase == "Succeeded"


def test_nothing_is_dispatched_before_the_window_of_a_recovery_ends() -> None:
    world = World(epoch=2, recovering_until_s=1003.0)
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(1.0)
    assert not world.attempts()
    world.tick(2.5)
    world.tick(0.1)
    assert len(world.attempts()) == 1


def test_a_clock_that_steps_an_hour_back_loses_no_worker_and_money_still_adds_up(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.now -= 3600
    world.beat()
    world.run()
    assert world.finals[uid].phase == "Succeeded"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_hit_before_a_restart_stays_a_hit_and_is_booked_once(chunked: bool, world: World) -> None:
    """A hit of one action, and one of a whole step of several chunks."""
    world.join("w1")
    rows = dataset("one", "two")
    first = step("a", rows_of(rows), uses=MAP) if chunked else step("a")
    world.submit(plan(first), artifacts=[rows])
    world.run()
    made = plan(first, step("b", uses=SOLO))
    uid = world.submit(made, artifacts=[rows])
    world.tick(0.1)
    lines = world.ledger[uid]
    (booked,) = [line for line in lines if isinstance(line, HitLine)]
    assert booked.saved_nanousd > 0

    later = World(epoch=2, recovering_until_s=world.now + 3.0, cache=world.cache, now=world.now)
    later.submit(made, uid, artifacts=[rows], restored=tuple(lines))
    later.join("w2")
    later.tick(3.5)
    later.run()
    status = later.finals[uid]
    assert (status.steps[0].hits, status.steps[0].executed) == (1, 0)
    assert status.saved_nanousd == status.steps[0].saved_nanousd == booked.saved_nanousd
    assert not any(isinstance(line, HitLine) for line in later.ledger[uid])


def test_fault_10_status_and_receipt_show_one_number_after_a_resume(world: World) -> None:
    rows = dataset("one", "two", "three")
    equal = step("b", value=1), step("b2", value=1)
    made = plan(step("m", rows_of(rows), uses=MAP), step("c", *after("m"), uses=SOLO), *equal)
    uid = world.submit(made, artifacts=[rows])
    world.join("w1")
    world.run(lambda w: len(w.executed) >= 4)
    assert uid not in world.finals
    lines = list(world.ledger[uid])
    for lost in (0, 1):  # the last line was not written before the control plane was killed
        later = World(
            epoch=2,
            recovering_until_s=world.now + 3.0,
            cache=dict(world.cache),
            now=world.now,
            ledger={uid: lines[: len(lines) - lost]},
        )
        later.submit(made, uid, artifacts=[rows], restored=tuple(lines[: len(lines) - lost]))
        later.join("w2")
        later.tick(3.5)
        later.run()
        compare(later.finals[uid], receipt(uid, "w", "team-a", later.ledger[uid]))
        assert later.finals[uid].executed == 5
        assert later.machine.state.book.bill_nanousd >= later.machine.state.book.receipts_nanousd


def compare(status: RunStatus, shown: Receipt) -> None:
    """A run's status and its receipt say the same of the run and of each step."""
    in_flight = sum(s.in_flight for s in shown.lines)
    assert (status.executed, status.hits) == (shown.executed, shown.hits + in_flight)
    assert (status.paid_nanousd, status.saved_nanousd) == (shown.paid_nanousd, shown.saved_nanousd)
    lines = {s.step: s for s in shown.lines}
    for s in status.steps:
        line = lines.get(s.path, ReceiptLine(s.path))
        assert (s.executed, s.hits) == (line.executed, line.hits + line.in_flight), s.path
        assert (s.paid_nanousd, s.tokens) == (line.paid_nanousd, line.tokens), s.path
