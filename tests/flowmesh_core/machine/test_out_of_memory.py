"""Out of memory: less at once, then a larger reservation, then a larger worker."""

import dataclasses

from tests.flowmesh_core.machine.world import World, only, plan, step

from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.placement.capacity import open_accounts
from flowmesh_core.protocol.messages import EngineInstanceState
from flowmesh_core.units import Digest


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


def test_an_engine_out_of_memory_before_its_first_action_reserves_more_and_isolates_no_action(
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


def test_no_action_of_a_batch_out_of_memory_on_the_largest_device_fails_before_it_ran_alone(
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


def test_an_action_that_no_device_can_hold_fails_and_excludes_no_other_action(world: World) -> None:
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


def test_an_action_too_large_for_the_largest_device_excludes_no_other_from_smaller_ones(
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


def test_a_closing_host_offers_no_slot_and_a_new_one_reserves_the_requested_memory(
    world: World,
) -> None:
    world.join("w1", device_memory_mib=1024)
    world.submit(plan(step("a", value=1)))
    world.run()
    signature = next(iter(world.machine.state.signatures))
    lane = EngineInstanceState(signature, "test.noop", "closing", 8, 32)
    world._sync("w1", instances=(lane,))
    world.machine.state.learned._reserve[signature] = 512
    world.submit(plan(step("a", value=2)))
    world.tick(0.1)
    assert only(world).memory_mib == 512
    (view,) = world.machine.snapshot(world.now).workers
    assert view.free_memory_mib == 512


def suspect(world: World) -> Digest:
    """An action that a host crashed with, and its signature, on one worker of 1 GiB."""
    world.join("w1", device_memory_mib=1024)
    world.submit(plan(step("a", value=1)))
    world.tick(0.1)
    world.fail(only(world).attempt_id, "host-crashed")
    return next(iter(world.machine.state.signatures))


def test_an_attempt_that_runs_alone_reserves_its_own_host_beside_the_shared_one(
    world: World,
) -> None:
    signature = suspect(world)
    world._sync("w1", instances=(EngineInstanceState(signature, "test.noop", "ready", 8, 32),))
    world.machine.state.learned._reserve[signature] = 512
    world.tick(0.1)
    (view,) = world.machine.snapshot(world.now).workers
    assert only(world).isolate
    assert view.free_memory_mib == 512


def test_an_idle_host_that_is_too_small_does_not_count_as_memory_for_an_isolated_attempt(
    world: World,
) -> None:
    signature = suspect(world)
    world.machine.state.learned._reserve[signature] = 512
    busy = EngineInstanceState("other", "test.noop", "ready", 8, 600)
    world._sync("w1", instances=(EngineInstanceState(signature, "test.noop", "ready", 8, 32), busy))
    account = open_accounts(world.machine.snapshot(world.now).workers)[0]
    account.free_mib = 424
    info = replace_field(world.machine.state.signatures[signature], 512)
    assert account.place_tier(info, alone=True) is None
    assert account.place_tier(info, alone=False) is not None


def replace_field(info: SignatureInfo, memory_mib: int) -> SignatureInfo:
    return dataclasses.replace(
        info, requirement=dataclasses.replace(info.requirement, memory_mib=memory_mib)
    )
