"""Attacker: W, a worker of a pool of trust 1.
Action: reports replicas of a service that it was not given, busy ones, and malformed ones.
Must not happen: the service pays for the worker, is shown as ready, or loses its own replica.
"""

from tests.attacks.by_hand import place, until
from tests.flowmesh_control.fabric import machine_of
from tests.flowmesh_core.machine.world import PRICE, World

from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica, ServingReplicaState
from flowmesh_core.units import Digest

SIGNATURE = Digest("cd" * 32)
OPENING = PrewarmSpec(SIGNATURE, "test.noop", 1, 1, memory_mib=100)
GIVEN = ServingReplica("team-a/ask/llm/r1/0", "team-a/ask", "llm", "r1", OPENING)


def busy(replica_id: str, **changes: object) -> ServingReplicaState:
    values = {"calls": 5, "units": 10**9, "signature": SIGNATURE, "memory_mib": 100, **changes}
    return ServingReplicaState(replica_id, "ready", **values)  # type: ignore[arg-type]


def test_only_the_worker_that_was_given_a_replica_is_paid_for_it() -> None:
    world = World()
    world.join("honest", "attacker", replicas=())
    world.apply(ServingPlanChanged({"honest": (GIVEN,)}))
    world.serves("attacker", busy(GIVEN.replica_id), busy("team-a/ask/llm/r1/1"))
    world.tick(9.0)
    state = world.machine.state
    assert state.service_spend["team-a/ask"] == 0
    world.beat()
    world.serves("honest", busy(GIVEN.replica_id))
    world.tick(9.0)
    assert state.service_spend["team-a/ask"] == PRICE * 9 // 3600


async def test_malformed_states_are_dropped_and_counted() -> None:
    async with place() as there:
        worker = await there.join("w", replicas=())
        state = machine_of(there.control).state
        await until(lambda: state.workers)
        await worker.sync(replicas=(busy("r", units=-1),))
        await until(lambda: there.dropped)
        assert state.workers["good-w"].replica_states == {}
        await worker.sync(replicas=(busy("r"),))
        await until(lambda: state.workers["good-w"].replica_states)
