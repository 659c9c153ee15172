"""Which workers are paid for in any case: those of pools that nobody makes smaller."""

from tests.flowmesh_core.run.world import World

from flowmesh_core.protocol.messages import Sync
from flowmesh_core.run.events import Scaled, WorkerSynced
from flowmesh_core.run.placing import snapshot


def sunk(world: World) -> set[str]:
    view = snapshot(world.machine.state, world.now)
    return {worker.name for worker in view.workers if worker.sunk}


def fleet() -> World:
    world = World()
    world.join("a1", "a2", pool="a")
    world.join("b1", pool="b")
    return world


def test_workers_of_a_fleet_that_nobody_scales_are_all_there_for_good() -> None:
    assert sunk(fleet()) == {"a1", "a2", "b1"}


def test_those_of_a_pool_that_can_do_without_them_are_not() -> None:
    world = fleet()
    world.apply(Scaled({"a": 1}))
    assert sunk(world) == {"b1"}, "one of the two of a may go"
    world.apply(Scaled({"a": 2, "b": 0}))
    assert sunk(world) == {"a1", "a2"}
    world.apply(Scaled({}))
    assert sunk(world) == {"a1", "a2", "b1"}


def test_who_leaves_is_not_counted() -> None:
    world = fleet()
    world.apply(Scaled({"a": 1}))
    world.apply(WorkerSynced("a2", world.incarnations["a2"], Sync(1, draining=True)))
    assert sunk(world) == {"a1", "a2", "b1"}


def test_what_waits_is_looked_at_again_where_the_pools_have_changed() -> None:
    world = fleet()
    state = world.machine.state
    for least, looks in (({"a": 1}, True), ({"a": 1}, False), ({}, True)):
        state.dirty = False
        world.apply(Scaled(least))
        assert state.dirty is looks
