"""Every kind of failure: what becomes of the action, who pays, and what is learned."""

import dataclasses

import pytest
from msgspec.structs import replace
from tests.flowmesh_core.run.world import (
    ASK,
    CALL,
    SOLO,
    World,
    after,
    dataset,
    outputs_of,
    plan,
    rows_of,
    step,
)
from tests.flowmesh_core.run.world import MAP as MAP_ENGINE

from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.protocol.messages import AttemptEnd, Honours, LaneState, LogLine
from flowmesh_core.run import commands as c
from flowmesh_core.run.settings import Settings
from flowmesh_core.scheduler.accounts import open_accounts


def only(world: World):  # type: ignore[no-untyped-def] - an Assignment
    (assignment,) = world.attempts()
    return assignment


def test_a_lost_workers_action_goes_back_at_once_and_after_a_second_loss_runs_alone(
    world: World,
) -> None:
    world.join("w1", "w2", "w3")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    holders = set()
    for isolate in (False, False, True):
        running = only(world)
        assert running.isolate == isolate
        holders.add(world.worker_of(running.attempt_id))
        if isolate:
            break
        world.begin(running.attempt_id)
        world.lose(world.worker_of(running.attempt_id))
        assert world.machine.state.runs[uid].steps["a"].state == "READY"
        world.tick(0.1)
    assert len(holders) == 3
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_worker_that_says_nothing_within_the_watchdog_is_lost(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    world.tick(9.0)
    assert "w1" in world.machine.state.workers
    world.tick(2.0)
    assert "w1" not in world.machine.state.workers


def test_the_third_loss_is_poison_and_the_losses_are_paid_by_the_fabric(world: World) -> None:
    uid = world.submit(plan(step("a")))
    for n in range(3):
        world.join(f"w{n}")
        world.tick(0.1)
        world.begin(only(world).attempt_id)
        world.now += 1
        world.lose(f"w{n}")
    final = world.finals[uid]
    assert (final.phase, final.reason) == ("Failed", "poison")
    assert final.paid_nanousd == 0
    assert world.machine.state.book.fabric_nanousd > 0


def test_preemption_and_drain_count_for_nothing(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", attempts=1)))
    for kind in ("preempted", "drained", "preempted", "drained"):
        world.tick(1)
        world.fail(only(world).attempt_id, kind)
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_an_engine_error_is_tried_again_with_backoff_on_another_worker_first(
    world: World,
) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    first = only(world)
    holder = world.worker_of(first.attempt_id)
    world.fail(first.attempt_id, "engine")
    world.tick(0.1)
    assert not world.attempts(), "the backoff has not passed"
    world.tick(1.0)
    assert world.worker_of(only(world).attempt_id) != holder
    world.fail(only(world).attempt_id, "engine")
    world.tick(2.1)
    world.fail(only(world).attempt_id, "engine", message="the engine broke")
    final = world.finals[uid]
    assert (final.phase, final.reason, final.message) == ("Failed", "engine", "the engine broke")
    assert final.steps[0].attempts == 3


@pytest.mark.parametrize("kind", ["bad-input", "user-code", "timeout"])
def test_what_is_the_steps_own_fault_is_not_tried_again_and_its_run_pays(
    world: World, kind: str
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    world.now += 1
    world.fail(only(world).attempt_id, kind)
    final = world.finals[uid]
    assert (final.phase, final.reason) == ("Failed", kind)
    assert final.paid_nanousd == pytest.approx(1_000_000, rel=0.2)


def test_out_of_memory_halves_the_load_then_reserves_more_then_asks_for_a_larger_worker(
    world: World,
) -> None:
    world.join("small", device_memory_mib=1024)
    for value in range(4):
        world.submit(plan(step("a", value=value)))
    world.tick(0.1)
    assert len(world.attempts()) == 4
    first, *_ = world.attempts()
    learned, signature = world.machine.state.learned, first.signature
    world.fail(first.attempt_id, "out-of-memory")
    assert learned.capacity_factors(signature) == {"cpu": 0.5}
    for other in world.attempts():
        world.finish(other.attempt_id)
    world.tick(0.1)
    for reserved in (256, 512):
        alone = only(world)
        assert (alone.isolate, alone.memory_mib) == (True, reserved)
        world.fail(alone.attempt_id, "out-of-memory")
        world.tick(0.1)
    assert only(world).memory_mib == 1024
    world.join("large", device_memory_mib=8192)
    world.fail(only(world).attempt_id, "out-of-memory")
    assert learned.more_than_mib(signature) == {"cpu": 1024}
    world.tick(0.1)
    assert world.worker_of(only(world).attempt_id) == "large"
    world.finish(only(world).attempt_id)
    world.submit(plan(step("a", value=99)))
    world.tick(0.1)
    assert world.worker_of(only(world).attempt_id) == "large", "the next one goes there at once"


def test_an_engine_that_is_too_large_before_it_ran_anything_reserves_more_and_isolates_nobody(
    world: World,
) -> None:
    world.join("only", device_memory_mib=4096)
    runs = [world.submit(plan(step("a", value=value))) for value in range(4)]
    world.tick(0.1)
    batch = world.attempts()
    learned, signature = world.machine.state.learned, batch[0].signature
    for attempt in batch:
        world.loads(attempt.attempt_id)
    for attempt in batch:  # as a worker reports a host that could not load
        world.fail(attempt.attempt_id, "out-of-memory")
    assert learned.capacity_factors(signature) == {}, "no load was too much: there was none"
    assert learned.reserve_mib(signature) == 2 * batch[0].memory_mib
    world.tick(0.1)
    again = world.attempts()
    assert len(again) == 4, "together, in one lane that is large enough"
    assert {(a.isolate, a.memory_mib) for a in again} == {(False, 2 * batch[0].memory_mib)}
    world.run()
    assert [world.finals[uid].phase for uid in runs] == ["Succeeded"] * 4


def test_of_a_batch_that_ran_out_of_memory_on_the_largest_device_none_fails_before_it_was_alone(
    world: World,
) -> None:
    world.join("only", device_memory_mib=256)
    runs = [world.submit(plan(step("a", value=value))) for value in range(8)]
    world.tick(0.1)
    batch = world.attempts()
    learned, signature = world.machine.state.learned, batch[0].signature
    assert (len(batch), batch[0].memory_mib) == (8, 256)
    for attempt in batch:  # as a worker reports a host that was ended
        world.fail(attempt.attempt_id, "out-of-memory")
    assert not world.finals
    assert learned.capacity_factors(signature) == {"cpu": 0.5}, "halved once, by one event"
    assert learned.more_than_mib(signature) == {}
    world.tick(0.1)
    cause = world.attempts()[0]
    assert cause.isolate
    world.fail(cause.attempt_id, "out-of-memory")
    world.run()
    ended = [world.finals[uid] for uid in runs]
    assert sorted(final.phase for final in ended) == ["Failed"] + ["Succeeded"] * 7


def test_what_no_device_can_hold_fails_alone_and_shuts_nobody_else_out(world: World) -> None:
    world.join("small", device_memory_mib=1024)
    greedy = world.submit(plan(step("a", value="greedy")))
    world.tick(0.1)
    for _ in range(9):
        if greedy in world.finals:
            break
        world.fail(only(world).attempt_id, "out-of-memory")
        world.tick(0.1)
    assert (world.finals[greedy].phase, world.finals[greedy].reason) == ("Failed", "out-of-memory")
    modest = world.submit(plan(step("a", value="modest")))
    world.tick(0.1)
    world.run()
    assert world.finals[modest].phase == "Succeeded"


def test_what_the_largest_device_cannot_hold_shuts_nobody_out_where_there_are_smaller_ones(
    world: World,
) -> None:
    world.join("small", device_memory_mib=512)
    world.join("large", device_memory_mib=4096, device_class="gpu")
    greedy = world.submit(plan(step("a", value="greedy")))
    world.tick(0.1)
    for _ in range(12):
        if greedy in world.finals:
            break
        world.fail(only(world).attempt_id, "out-of-memory")
        world.tick(0.1)
    assert world.finals[greedy].reason == "out-of-memory"
    modest = world.submit(plan(step("a", value="modest")))
    world.run()
    assert world.finals[modest].phase == "Succeeded"


def test_of_attempts_that_come_back_after_another_one_was_sent_none_goes_on(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    gone = {}
    for name, other in (("w1", "w2"), ("w2", "w3")):
        gone[name] = dict(world.held[name])
        world.lose(name)
        world.join(other)
        world.now += 5
        world.tick(0.1)
    assert only(world).attempt_id in world.held["w3"]
    kept: list[str] = []
    do = world._do
    world._do = lambda command: (  # type: ignore[method-assign]
        kept.extend(command.keep) if isinstance(command, c.KeepAttempts) else None,
        do(command),
    )[1]
    for name, held in gone.items():
        world.held[name] = held
        world.hello(name)
    assert kept == []
    assert not world.machine.state.unclaimed_held


def test_a_host_that_closes_is_no_place_and_a_new_one_reserves_what_is_asked(world: World) -> None:
    world.join("w1", device_memory_mib=1024)
    world.submit(plan(step("a", value=1)))
    world.run()
    signature = next(iter(world.machine.state.signatures))
    lane = LaneState(signature, "test.noop", "closing", 8, 32)
    world._sync("w1", lanes=(lane,))
    world.machine.state.learned._reserve[signature] = 512
    world.submit(plan(step("a", value=2)))
    world.tick(0.1)
    assert only(world).memory_mib == 512
    (view,) = world.machine.snapshot(world.now).workers
    assert view.free_memory_mib == 512


def test_an_attempt_that_runs_alone_reserves_its_own_host_beside_the_shared_one(
    world: World,
) -> None:
    world.join("w1", device_memory_mib=1024)
    world.submit(plan(step("a", value=1)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "host-crashed")
    signature = next(iter(world.machine.state.signatures))
    world._sync("w1", lanes=(LaneState(signature, "test.noop", "ready", 8, 32),))
    world.machine.state.learned._reserve[signature] = 512
    world.tick(0.1)
    (view,) = world.machine.snapshot(world.now).workers
    assert only(world).isolate
    assert view.free_memory_mib == 512


def test_an_idle_host_that_is_too_small_is_no_room_for_an_attempt_that_runs_alone(
    world: World,
) -> None:
    world.join("w1", device_memory_mib=1024)
    world.submit(plan(step("a", value=1)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "host-crashed")
    signature = next(iter(world.machine.state.signatures))
    world.machine.state.learned._reserve[signature] = 512
    busy = LaneState("other", "test.noop", "ready", 8, 600)
    world._sync("w1", lanes=(LaneState(signature, "test.noop", "ready", 8, 32), busy))
    account = open_accounts(world.machine.snapshot(world.now).workers)[0]
    account.free_mib = 424
    info = replace_field(world.machine.state.signatures[signature], 512)
    assert account.place_tier(info, alone=True) is None
    assert account.place_tier(info, alone=False) is not None


def replace_field(info: SignatureInfo, memory_mib: int) -> SignatureInfo:
    return dataclasses.replace(
        info, requirement=dataclasses.replace(info.requirement, memory_mib=memory_mib)
    )


@pytest.mark.parametrize("kind", ["engine", "preempted", "drained", "host-crashed", "store"])
def test_a_call_that_was_begun_and_must_not_be_repeated_is_not_whatever_ended_it(
    world: World, kind: str
) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, kind, run_s=0.5)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", kind)
    assert "may have been made" in world.finals[uid].message


def test_a_call_whose_worker_is_lost_is_not_repeated(world: World) -> None:
    world.join("w1", "w2")
    uid = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.lose(world.worker_of(only(world).attempt_id))
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "lost")


def test_a_call_that_was_never_begun_or_is_declared_idempotent_is_made_elsewhere(
    world: World,
) -> None:
    world.join("w1", "w2")
    fresh = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "drained")
    world.run()
    assert world.finals[fresh].phase == "Succeeded"
    safe = world.submit(plan(step("b", uses=CALL, safe=True)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "engine", run_s=0.5)
    world.tick(2.0)
    world.run()
    assert world.finals[safe].phase == "Succeeded"


def test_a_straggler_gets_a_replica_the_first_publication_wins_the_loser_is_fabric(
    world: World,
) -> None:
    world.join("w1", "w2")
    for n in range(3):
        world.submit(plan(step("a", uses=SOLO, value=n)), f"before-{n}")
    world.run()
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    slow = only(world)
    holder = world.worker_of(slow.attempt_id)
    world.begin(slow.attempt_id)
    published = len(world.publications)
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()
    assert len(world.attempts()) == 2
    replica = next(a for a in world.attempts() if a.attempt_id != slow.attempt_id)
    assert world.worker_of(replica.attempt_id) != holder
    world.begin(replica.attempt_id)
    world.now += 1
    world.finish(replica.attempt_id)
    final = world.finals[uid]
    assert final.phase == "Succeeded"
    assert not world.attempts(), "the loser was told to stop"
    assert len(world.publications) == published + 1


def test_an_action_that_is_lost_while_its_replica_waits_for_a_worker_is_tried_again(
    world: World,
) -> None:
    world.join("w1")
    world.join("small", device_memory_mib=1)
    for n in range(3):
        world.submit(plan(step("a", uses=SOLO, value=n)), f"before-{n}")
    world.run()
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    slow = only(world)
    world.begin(slow.attempt_id)
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()
    assert world.machine.state.replicas, "the worker that idles is too small for it"
    world.lose("w1")
    world.join("w2")
    world.run()
    assert world.finals[uid].phase == "Succeeded"


@pytest.mark.parametrize("then", ["says how far it is", "ends", "fails", "is lost", "prints"])
def test_a_straggler_that_wakes_after_its_run_is_over_changes_nothing(
    world: World, then: str
) -> None:
    world.join("w1", "w2")
    for n in range(3):
        world.submit(plan(step("a", uses=SOLO, value=n)), f"before-{n}")
    world.run()
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    slow = only(world)
    holder = world.worker_of(slow.attempt_id)
    world.begin(slow.attempt_id)
    world.deaf.add(holder)
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()
    replica = next(a for a in world.attempts() if a.attempt_id != slow.attempt_id)
    world.finish(replica.attempt_id)
    assert world.finals[uid].phase == "Succeeded"
    published, cache = list(world.publications), dict(world.cache)
    match then:
        case "says how far it is":
            world.begin(slow.attempt_id, units=3)
        case "prints":
            world._sync(holder, logs=(LogLine(slow.attempt_id, world.now, "late"),))
        case "ends":
            world.finish(slow.attempt_id)
        case "fails":
            world.fail(slow.attempt_id, "engine")
        case _:
            world.lose(holder)
    world.tick(1.0)
    assert (world.publications, world.cache) == (published, cache)


def test_an_attempt_of_a_kind_that_was_never_seen_gets_no_replica(world: World) -> None:
    world.join("w1", "w2")
    world.submit(plan(step("a", uses=SOLO)))
    world.tick(0.1)
    world.begin(only(world).attempt_id)
    for _ in range(4):
        world.now += 5
        world.beat()
        world.tick()
    only(world)


def test_a_late_end_of_an_action_that_is_published_changes_nothing(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a")))
    world.tick(0.1)
    attempt = only(world)
    world.finish(attempt.attempt_id)
    before = len(world.publications)
    end = AttemptEnd(attempt.attempt_id, attempt.action_id)
    world._sync("w1", ended=(end,))
    assert len(world.publications) == before


def test_a_lost_input_is_made_again_with_a_higher_generation(world: World) -> None:
    world.join("w1")
    made = plan(step("a"), step("b", *after("a"), value=1))
    world.submit(made)
    world.run()
    lost = next(iter(world.cache.values())).outputs["metrics"].blob
    second = world.submit(plan(step("a"), step("b", *after("a"), value=2)))
    world.tick(0.1)
    world.lost_blobs.add(lost)
    world.fail(only(world).attempt_id, "missing-blob", detail=lost)
    assert lost in world.discarded
    world.run()
    assert world.finals[second].phase == "Succeeded"
    assert [g for _, _, g in world.publications].count(2) == 1


def test_a_lost_intermediate_that_nobody_needs_runs_nothing(world: World) -> None:
    world.join("w1")
    made = plan(step("a"), step("b", *after("a")), outputs={"out": (StepSource("b", "metrics"),)})
    world.submit(made)
    world.run()
    result = next(r for r in world.cache.values() if not r.inputs)
    world.lost_blobs.add(result.outputs["metrics"].blob)
    world.submit(made)
    world.run()
    assert len(world.executed) == 2


def test_a_lost_output_is_made_again_before_the_verdict(world: World) -> None:
    world.join("w1")
    rows = dataset("one", "two")
    made = plan(
        step("m", rows_of(rows), uses=MAP_ENGINE),
        outputs={"rows": (StepSource("m", "rows"),)},
    )
    world.submit(made, artifacts=[rows])
    world.run()
    chunk_results = [r for r in world.cache.values() if r.outputs["rows"].rows == 1]
    lost = chunk_results[0].outputs["rows"].manifest.chunks[0].blob  # type: ignore[union-attr]
    world.lost_blobs.add(lost)
    uid = world.submit(made, artifacts=[rows])
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert lost not in world.lost_blobs
    assert len(world.executed) == 3
    other = chunk_results[1].outputs["rows"].manifest.chunks[0].blob  # type: ignore[union-attr]
    assert other in world.discarded, "what was made together is read again"


def test_a_lost_upload_fails_the_step_with_what_to_do(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    uid = world.submit(plan(step("m", rows_of(rows), uses=MAP_ENGINE)), artifacts=[rows])
    world.tick(0.1)
    blob = rows.manifest.chunks[0].blob  # type: ignore[union-attr]
    world.fail(only(world).attempt_id, "missing-blob", detail=blob)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "missing-blob")


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


def test_an_action_goes_on_while_one_of_its_runs_can_pay(world: World) -> None:
    world.join("w1")
    poor = world.submit(plan(step("a"), budget_nanousd=1), share="group-x")
    rich = world.submit(plan(step("a"), namespace="team-b"), share="group-x")
    world.run()
    assert world.finals[rich].phase == "Succeeded"
    assert world.finals[poor].phase == "Succeeded"


def test_what_no_worker_can_take_fails_with_the_reason_on_a_fixed_fleet() -> None:
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


def test_what_a_fixed_fleet_does_not_serve_fails_once_its_workers_are_there() -> None:
    world = World(Settings(unplaceable_after_s=60.0))
    asked = replace(step("a", uses=ASK), fields={"dtype": "bfloat16"})
    uid = world.submit(plan(asked))
    world.tick(0.1)
    world.join("w1", honours=(Honours(ASK.name, dtypes=("auto", "float32")),))
    world.tick(0.3)
    waiting = world.machine.state.runs[uid].steps["a"]
    assert "set with.dtype: float32, or add a pool that does" in waiting.wait_detail
    world.tick(2.1)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "unplaceable")


def test_a_suspended_run_waits_until_it_is_resumed(world: World) -> None:
    from flowmesh_core.run.events import Amended

    world.join("w1")
    uid = world.submit(plan(step("a"), suspend=True))
    world.tick(0.1)
    assert not world.attempts()
    world.apply(Amended(uid, {"suspend": False}))
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_after_a_restart_finished_and_running_attempts_are_taken_up_not_run_again() -> None:
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


def test_an_attempt_that_failed_before_it_could_be_taken_up_is_not_taken_up() -> None:
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


def test_a_clock_that_steps_an_hour_back_loses_nobody_and_money_still_adds_up(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.now -= 3600
    world.beat()
    world.run()
    assert world.finals[uid].phase == "Succeeded"
