"""Attacker: W, a worker of a pool of trust 1.
Action: reports replicas of a service that it was not given, busy ones, and malformed ones; also to
    a new leader, with a token of another worker, of its former process, or for another replica.
Must not happen: the service pays for the worker, is shown as ready, or loses its own replica, or
    calls of the replica go to the attacker.
"""

import msgspec
from tests.attacks.by_hand import place, until
from tests.flowmesh_control.fabric import machine_of
from tests.flowmesh_control.given import given_attempts
from tests.flowmesh_core.machine.world import PRICE, World, shape

from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import (
    Hello,
    PrewarmSpec,
    ServingReplica,
    ServingReplicaState,
    Sync,
)
from flowmesh_core.units import Digest

SIGNATURE = Digest("cd" * 32)
OPENING = PrewarmSpec(SIGNATURE, "test.noop", 1, 1, memory_mib=100)
GIVEN = ServingReplica("team-a/ask/llm/r1/0", "team-a/ask", "llm", "r1", OPENING)
HELLO = Hello(2, 0, "i1", 0.0, shape("w1"))


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


def intake(worker: str = "w1", incarnation: str = "i1") -> MessageIntake:
    """Returns the checks of a new leader's connection."""
    return MessageIntake(given_attempts(worker, incarnation=incarnation))


def believed(checks: MessageIntake, *states: ServingReplicaState) -> tuple[list[str], set[str]]:
    """Returns the replicas that a worker has by its first message, and why others are dropped."""
    checked = checks.hello(msgspec.structs.replace(HELLO, replicas=states))
    assert checked.message.replicas is not msgspec.UNSET
    assert not any(s.token for s in checked.message.replicas)
    later = checks.sync(Sync(1, replicas=states)).message.replicas
    assert later == checked.message.replicas
    return [s.replica_id for s in later or ()], {str(reason) for reason in checked.dropped.counts}


def test_after_a_change_of_leader_a_worker_has_only_what_its_process_was_given() -> None:
    before = given_attempts("w1")
    token = before.give_replica(GIVEN).opening.token
    kept = busy(GIVEN.replica_id, token=token)
    other = busy("team-a/ask/llm/r1/1", token=token)
    prewarmed = busy(GIVEN.replica_id, token=before.reading_token(()))
    assert believed(intake(), kept) == ([GIVEN.replica_id], set())
    assert believed(intake(), kept, other) == ([GIVEN.replica_id], {"replica-id"})
    for attacker in (intake("w2"), intake(incarnation="i2")):
        assert believed(attacker, kept) == ([], {"replica-id"})
    for state in (busy(GIVEN.replica_id), prewarmed):
        assert believed(intake(), state) == ([], {"replica-id"})
    # and the token ends no attempt
    assert not before.admits(f"replica:{GIVEN.replica_id}", token)
