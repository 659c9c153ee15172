"""Why a step waits, where the actions of one signature wait for different things."""

from msgspec import structs
from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.snapshot import Decision, Rejection
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings


def told(world: World, uid: str) -> dict[str, str]:
    return {path: s.wait_reason for path, s in world.machine.state.runs[uid].steps.items()}


def test_an_action_in_backoff_is_distinguished_from_one_that_waits_for_room() -> None:
    world = World()
    world.join("w1")
    uid = world.submit(plan(*(step(f"s{n}", uses=SOLO, v=n) for n in range(5))))
    world.tick(0.1)
    first = world.attempts()[0]
    world.fail(first.attempt_id, "engine")
    world.tick(0.3)
    reasons = told(world, uid)
    assert sorted(r for r in reasons.values() if r)[:2] == ["backoff", "busy"]
    failed = next(
        path
        for path, s in world.machine.state.runs[uid].steps.items()
        if s.parts[0].key is not None and s.parts[0].key.action_id == first.action_id
    )
    assert reasons[failed] == "backoff"


def test_an_action_does_not_fail_for_a_rejection_of_another_action_of_its_signature() -> None:
    world = World(settings=Settings(watchdog_s=1e9, unplaceable_after_s=5.0))
    uid = world.submit(plan(step("a", uses=SOLO)))
    (action,) = world.machine.state.ready.values()
    signature = action.info.signature
    passing = Rejection(signature, RejectionCause.BUSY, 1, "full")
    never = Rejection(signature, RejectionCause.MEMORY, 9, "too large")
    world.now += 60.0
    world.apply(e.PlacementDecided(Decision((), (passing, never))))
    assert told(world, uid) == {"a": "busy"}
    world.now += 60.0
    world.apply(e.PlacementDecided(Decision((), (never,))))
    assert world.finals[uid].phase == "Failed"


def test_a_watcher_of_a_run_gets_its_reason_to_wait_once() -> None:
    world = World(settings=Settings(watchdog_s=1e9))
    uid = world.submit(plan(step("a", uses=SOLO)))
    (action,) = world.machine.state.ready.values()
    small = Rejection(action.info.signature, RejectionCause.MEMORY, 1, "too small")

    def told_after(rejection: Rejection) -> list[c.Command]:
        world.now += 1.0
        decided = e.PlacementDecided(Decision((), (rejection,)))
        return [x for x in world.machine.apply(decided, world.now) if isinstance(x, c.RunChanged)]

    assert told_after(small) == [c.RunChanged(uid)]
    assert told_after(small) == []
    assert told_after(structs.replace(small, cause=RejectionCause.BUSY)) == [c.RunChanged(uid)]
