"""What workers report of replicas that ran out of memory counts for those that are loaded later."""

import pytest
from tests.flowmesh_core.machine.test_serving import planned, replica, state_of
from tests.flowmesh_core.machine.world import World

from flowmesh_control.serving.learned_halvings import LearnedHalvings
from flowmesh_core.protocol.messages import ServingReplica

HERE = ("default", "cpu")


@pytest.fixture
def world() -> World:
    """Two workers, of which one was given a replica."""
    made = World()
    made.join("w", "v", replicas=())
    planned(made, w=(replica("team-a/ask"),))
    return made


def learned(
    world: World, known: LearnedHalvings, one: ServingReplica
) -> dict[tuple[str, str], int]:
    known.observe(world.machine.state.workers.values())
    return dict(known.of(one.opening.signature))


def test_the_most_that_was_reported_counts_until_nothing_loads_the_signature(world: World) -> None:
    known, one = LearnedHalvings(), replica("team-a/ask")
    assert learned(world, known, one) == {}
    for reported, counts in ((1, 1), (3, 3), (0, 3), (2, 3)):
        world.serves("w", state_of(one, halvings=reported))
        assert learned(world, known, one) == {HERE: counts}
    planned(world)
    world.serves("w")
    assert learned(world, known, one) == {HERE: 3}
    known.keep({one.opening.signature})
    assert known.of(one.opening.signature) == {HERE: 3}
    known.keep(set())
    assert known.of(one.opening.signature) == {}


def test_a_worker_that_was_not_given_a_replica_teaches_nothing_of_it(world: World) -> None:
    known, one = LearnedHalvings(), replica("team-a/ask")
    world.serves("v", state_of(one, halvings=16))
    assert learned(world, known, one) == {}
    other = replica("team-b/chat")
    world.serves("w", state_of(one, halvings=1, signature=other.opening.signature))
    assert learned(world, known, other) == {}, "the signature is that of what it was given"
    assert learned(world, known, one) == {HERE: 1}
