"""The fleet as values, and cordons and prewarming as levels."""

from tests.flowmesh_core.machine.test_prewarm import BASE, two_steps
from tests.flowmesh_core.machine.world import ASK, World

from flowmesh_control.autoscaling.capacity_signal import CapacitySignalSource
from flowmesh_control.autoscaling.worker_fleet import ConnectedFleet
from flowmesh_core.machine.events import (
    CordonChanged,
    PrewarmPlanChanged,
    ReservedPoolsChanged,
)
from flowmesh_core.protocol.messages import EngineVariant


def fleet_of(
    world: World,
) -> tuple[ConnectedFleet, list[CordonChanged | PrewarmPlanChanged | ReservedPoolsChanged]]:
    """The fleet, and the events that it has handed to the machine."""
    asked = list[CordonChanged | PrewarmPlanChanged | ReservedPoolsChanged]()

    async def ask(event: CordonChanged | PrewarmPlanChanged | ReservedPoolsChanged) -> None:
        asked.append(event)
        world.apply(event)

    return ConnectedFleet(world.machine.state, ask), asked


def test_the_workers_of_a_pool_are_those_that_name_it() -> None:
    world = World()
    world.join("a", "b")
    world.join("c", pool="other")
    fleet, _ = fleet_of(world)
    assert [w.name for w in fleet.workers("default")] == ["a", "b"]
    assert [w.name for w in fleet.workers("other")] == ["c"]
    assert fleet.workers("none") == ()


async def test_a_cordon_is_posted_to_the_machine_only_if_it_changes_something() -> None:
    world = World()
    world.join("a", "b")
    fleet, asked = fleet_of(world)
    await fleet.cordon(frozenset())
    assert asked == []
    before = fleet.workers("default")
    for _ in range(2):
        await fleet.cordon(frozenset({"a"}))
    assert asked == [CordonChanged(frozenset({"a"}))]
    assert [w.takes_work for w in fleet.workers("default")] == [False, True]
    assert [w.takes_work for w in before] == [True, True]
    await fleet.cordon(frozenset())
    assert all(w.takes_work for w in fleet.workers("default"))


async def test_a_prewarm_plan_is_posted_to_the_machine_only_if_it_changes_something() -> None:
    world = World()
    world.join("w", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
    world.submit(two_steps(), artifacts=(BASE,))
    world.tick(1.0)
    fleet, asked = fleet_of(world)
    plan = CapacitySignalSource(world.machine.state, lambda: world.now).prewarm_plan()
    assert plan
    for _ in range(2):
        await fleet.prewarm(plan)
    assert asked == [PrewarmPlanChanged(plan)]
    assert len(world.told) == 1


async def test_reserved_pools_reach_the_machine_only_where_they_change() -> None:
    world = World()
    fleet, asked = fleet_of(world)
    await fleet.reserve({})
    assert asked == []
    for _ in range(2):
        await fleet.reserve({"ours": frozenset({"team-a"})})
    assert asked == [ReservedPoolsChanged({"ours": frozenset({"team-a"})})]
