"""A cordoned worker takes nothing new, keeps what it runs, and may be taken back."""

from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.machine.events import CordonChanged
from flowmesh_core.status.projection import worker_statuses


def states(world: World) -> dict[str, str]:
    return {w.shape.name: w.state for w in worker_statuses(world.machine.state, world.now)}


def test_a_cordoned_worker_gets_no_new_work_until_it_is_uncordoned() -> None:
    world = World()
    world.join("w")
    world.apply(CordonChanged(frozenset({"w"})))
    world.submit(plan(step("a")))
    world.tick(1.0)
    assert world.attempts() == []
    assert states(world) == {"w": "cordoned"}
    (rejection,) = world.machine.state.rejections
    assert rejection.cause is RejectionCause.DRAINING
    world.apply(CordonChanged(frozenset()))
    world.tick(1.0)
    assert len(world.attempts()) == 1
    assert states(world) == {"w": "busy"}


def test_running_attempts_of_a_cordoned_worker_continue() -> None:
    world = World()
    world.join("w")
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(1.0)
    world.apply(CordonChanged(frozenset({"w"})))
    world.tick(1.0)
    (assignment,) = world.attempts()
    assert states(world) == {"w": "busy"}
    world.finish(assignment.attempt_id)
    world.tick(1.0)
    assert world.finals[uid].phase == "Succeeded"


def test_a_worker_that_joins_after_it_was_cordoned_gets_no_work() -> None:
    world = World()
    world.apply(CordonChanged(frozenset({"late"})))
    world.submit(plan(step("a")))
    world.join("late")
    world.tick(1.0)
    assert world.attempts() == []
    world.join("other")
    world.tick(1.0)
    assert list(world.held["other"])


def test_a_reconnecting_cordoned_worker_continues_its_attempts() -> None:
    world = World()
    world.join("w")
    world.submit(plan(step("a", uses=SOLO)))
    world.tick(1.0)
    world.apply(CordonChanged(frozenset({"w"})))
    world.hello("w")
    assert len(world.machine.state.workers["w"].attempts) == 1
