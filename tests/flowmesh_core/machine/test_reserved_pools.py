"""A reserved pool runs the actions of the namespaces that it admits, and of no other."""

from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.machine.events import ReservedPoolsChanged
from flowmesh_core.machine.settings import Settings

OURS = ReservedPoolsChanged({"ours": frozenset({"team-a"})})


def reasons(world: World) -> dict[str, tuple[str, str]]:
    """Run → the reason for which its step waits, with the text for users."""
    runs = world.machine.state.runs
    return {u: (s.wait_reason, s.wait_detail) for u, r in runs.items() for s in r.steps.values()}


def test_another_namespace_waits_with_the_reason_and_the_owner_is_served() -> None:
    world = World()
    world.join("w", pool="ours")
    world.apply(OURS)
    other = world.submit(plan(step("x", v=1), namespace="team-b"), "b")
    world.tick(1.0)
    assert world.attempts() == []
    cause, text = reasons(world)[other]
    assert cause == RejectionCause.RESERVED
    assert "pool ours, which is reserved for other namespaces" in text
    world.submit(plan(step("y", v=2), namespace="team-a"), "a")
    world.tick(1.0)
    assert [a.run_uids for a in world.attempts()] == [("a",)]


def test_each_namespace_gets_its_own_reason_for_actions_of_one_signature() -> None:
    world = World()
    world.join("w", pool="ours")
    world.apply(OURS)
    for team in ("team-a", "team-b"):
        steps = (step(f"s{n}", uses=SOLO, v=f"{team}{n}") for n in range(5))
        world.submit(plan(*steps, namespace=team), team)
    world.tick(1.0)
    world.tick(1.0)
    waiting = world.machine.state.runs["team-a"].steps.values()
    assert RejectionCause.BUSY in {s.wait_reason for s in waiting}
    assert RejectionCause.RESERVED not in {s.wait_reason for s in waiting}
    others = world.machine.state.runs["team-b"].steps.values()
    assert {s.wait_reason for s in others} == {RejectionCause.RESERVED}


def test_an_action_that_an_admitted_namespace_subscribes_to_runs_in_a_reserved_pool() -> None:
    world = World()
    world.join("w", pool="ours")
    world.apply(OURS)
    world.submit(plan(step("x", v=1), namespace="team-b"), "b", share="group-x")
    world.tick(1.0)
    assert world.attempts() == []
    world.submit(plan(step("x", v=1), namespace="team-a"), "a", share="group-x")
    world.tick(1.0)
    assert [set(a.run_uids) for a in world.attempts()] == [{"a", "b"}]


def test_a_pool_that_is_no_longer_reserved_runs_actions_of_every_namespace() -> None:
    world = World()
    world.join("w", pool="ours")
    world.apply(OURS)
    world.submit(plan(step("x", v=1), namespace="team-b"), "b")
    world.tick(1.0)
    assert world.attempts() == []
    world.apply(ReservedPoolsChanged({}))
    world.tick(1.0)
    assert len(world.attempts()) == 1


def test_nothing_is_placed_before_declared_pools_are_known() -> None:
    world = World(settings=Settings(watchdog_s=1e9, pools_are_declared=True))
    world.join("w")
    world.submit(plan(step("x", v=1)))
    world.tick(1.0)
    assert world.attempts() == []
    world.apply(ReservedPoolsChanged({}))
    world.tick(1.0)
    assert len(world.attempts()) == 1
