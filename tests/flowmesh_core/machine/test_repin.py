"""A run is re-pinned while it runs: published results and payments stay."""

from tests.flowmesh_core.machine.world import (
    MAP,
    NOOP,
    SOLO,
    World,
    after,
    dataset,
    plan,
    rows_of,
    step,
)

from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.ledger_lines import AmendmentLine
from flowmesh_core.graph.plan import Plan
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.messages import EngineVersion


def repin(world: World, uid: str, made: Plan) -> None:
    run = world.machine.state.runs[uid]
    submitted = e.Submitted(
        uid, made, run.created_s, run.scopes, run.artifacts, restored=tuple(run.lines)
    )
    world.apply(e.Repinned(submitted, "runs/x/repins/1", {"test.solo": "1.1 -> 1.2"}))


def test_after_a_repin_published_steps_hit_and_the_running_attempt_is_paid_and_replaced() -> None:
    world = World()
    world.join("w1")
    uid = world.submit(plan(step("a"), step("b", *after("a"))))
    world.tick(0.1)
    world.finish(world.attempts()[0].attempt_id)
    world.tick(0.5)
    (old,) = world.attempts()
    world.begin(old.attempt_id)
    world.tick(2.0)
    repin(world, uid, plan(step("a"), step("b", *after("a"), uses=SOLO)))
    assert old.attempt_id not in [a.attempt_id for a in world.attempts()]
    world.run()
    status = world.finals[uid]
    assert status.phase == "Succeeded"
    assert [a.split("/")[1] for a in world.executed].count(old.action_id) == 0
    assert len(world.executed) == 2
    lines = world.ended_runs[uid].lines
    outcomes = [(la.step, la.outcome) for la in lines if isinstance(la, AttemptLine)]
    assert outcomes == [("a", "published"), ("b", "cancelled"), ("b", "published")]
    (amendment,) = [la for la in lines if isinstance(la, AmendmentLine)]
    assert amendment.changes["pins"] == "runs/x/repins/1"
    book = world.machine.state.book
    assert status.paid_nanousd == book.receipts_nanousd
    assert book.unsettled_nanousd == 0


def test_a_pending_look_up_is_dropped_on_a_repin() -> None:
    world = World()
    world.join("w1")
    rows = dataset(*(f"row {n}" for n in range(80)))
    world.mute_store = True
    uid = world.submit(plan(step("map", rows_of(rows), uses=MAP)), artifacts=[rows])
    before = step("before", rows_of(rows), uses=MAP)
    repin(world, uid, plan(before, step("map", rows_of("before"), *after("before"), uses=MAP)))
    world.answer()
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_repinned_run_ends_once_the_stopped_attempt_is_paid() -> None:
    world = World()
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    (old,) = world.attempts()
    world.begin(old.attempt_id)
    world.tick(2.0)
    del world.held["w1"][old.attempt_id]  # it takes its time to stop
    repin(world, uid, plan(step("a", uses=SOLO)))
    world.tick(0.1)
    world.finish(world.attempts()[0].attempt_id)
    assert uid not in world.finals
    world.held["w1"][old.attempt_id] = old
    world.fail(old.attempt_id, "cancelled")
    assert world.finals[uid].paid_nanousd == world.machine.state.book.receipts_nanousd > 0


def test_another_run_keeps_the_action_that_a_repinned_run_leaves() -> None:
    world = World()
    world.join("w1")
    first = world.submit(plan(step("a")))
    second = world.submit(plan(step("a")))
    world.tick(0.1)
    (running,) = world.attempts()
    repin(world, first, plan(step("a", uses=SOLO)))
    assert running.attempt_id in [a.attempt_id for a in world.attempts()]
    world.run()
    assert {world.finals[uid].phase for uid in (first, second)} == {"Succeeded"}


def test_a_repin_does_not_change_an_ended_run() -> None:
    world = World()
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.mute_store = True
    world.finish(world.attempts()[0].attempt_id)
    run = world.machine.state.runs[uid]
    run.finishing = True
    repin(world, uid, plan(step("a", uses=SOLO)))
    assert world.machine.state.runs[uid] is run


def test_a_step_waits_for_a_version_that_no_worker_offers_even_on_a_fixed_fleet() -> None:
    world = World(settings=Settings(watchdog_s=1e9, unplaceable_after_s=5.0))
    newer = {NOOP.name: EngineVersion(NOOP.version, NOOP.implementation + 1)}
    world.join("w1", engines=newer)
    uid = world.submit(plan(step("a")))
    for _ in range(20):
        world.tick(1.0)
    waiting = world.machine.state.runs[uid].steps["a"]
    assert waiting.wait_reason == "version-not-offered"
    assert "fmesh repin" in waiting.wait_detail
