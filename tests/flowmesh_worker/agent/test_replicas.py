"""A worker holds replicas of services in real hosts, and its hub is given their sockets."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flowmesh_core.protocol.messages import RouterAddress, ServingReplica, ServingReplicaState
from flowmesh_core.worker_agent import events as e
from flowmesh_worker.ipc.host_directory import socket_folder

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import Gateway, World

ROUTERS = (RouterAddress("unix:/run/router.sock"),)


class ListedHub:
    """A hub without a process: takes every replica at once, and notes what the agent wants."""

    def __init__(self, post: Callable[[e.Event], None]) -> None:
        self._post = post
        self.routers: tuple[RouterAddress, ...] = ()
        self.sockets: dict[str, Path] = {}

    def start(self, hub_id: int, routers: tuple[RouterAddress, ...]) -> None:
        """See ``ServingHub.start``."""
        self.routers = routers
        self._post(e.HubReady(hub_id))

    def stop(self, hub_id: int) -> None:
        """See ``ServingHub.stop``."""
        self.routers = ()

    def admit(
        self, instance_id: int, calls_socket: Path, replica: ServingReplica, halvings: int = 0
    ) -> None:
        """See ``ServingHub.admit``."""
        self.sockets[replica.replica_id] = calls_socket

    def withdraw(self, replica_id: str) -> None:
        """See ``ServingHub.withdraw``."""
        self.sockets.pop(replica_id, None)

    async def close(self) -> None:
        """See ``ServingHub.close``."""

    def busy(self, replica_id: str, calls: int) -> None:
        """Reports calls."""
        self._post(e.CallsBusy(replica_id, calls, 10 * calls))


def replica(world: "World") -> ServingReplica:
    opening = world.prewarm("test.noop")
    return ServingReplica("team-a/ask/llm/r1/0", "team-a/ask", "llm", "r1", opening)


async def reported(
    gateway: "Gateway", condition: Callable[[tuple[ServingReplicaState, ...]], bool]
) -> tuple[ServingReplicaState, ...]:
    """Waits for a report of all replicas."""

    def found() -> list[tuple[ServingReplicaState, ...]]:
        reports = [s.replicas for s in gateway.syncs if s.replicas is not None]
        return [r for r in reports if condition(r)]

    last: tuple[ServingReplicaState, ...] = (await gateway.until(found))[-1]
    return last


async def test_a_replica_takes_calls_beside_attempts_until_it_is_off_the_list(
    world: "World",
) -> None:
    hubs: list[ListedHub] = []

    def make(post: Callable[[e.Event], None]) -> ListedHub:
        hubs.append(ListedHub(post))
        return hubs[0]

    agent = await world.worker(hub=make)
    assert world.gateway.hellos[0].replicas == ()
    wanted = replica(world)
    await world.gateway.desire(replicas=(wanted,), routers=ROUTERS)
    await reported(world.gateway, lambda found: [r.state for r in found] == ["ready"])
    (host,) = agent.hosts
    assert hubs[0].routers == ROUTERS
    assert hubs[0].sockets == {wanted.replica_id: socket_folder(host.folder) / "calls.sock"}
    end = await world.gateway.do(world.assignment("test.noop", params={"value": 7}))
    assert end.failure is None
    assert [one.process.pid for one in agent.hosts] == [host.process.pid]
    hubs[0].busy(wanted.replica_id, 2)
    await reported(world.gateway, lambda found: found != () and found[0].calls > 0)
    await world.gateway.desire(replicas=())
    await reported(world.gateway, lambda found: [r.state for r in found] == ["closing"])
    assert hubs[0].sockets == {}
    hubs[0].busy(wanted.replica_id, 0)
    await reported(world.gateway, lambda found: found == ())
    assert hubs[0].routers == ()


async def test_a_worker_that_connects_again_reports_its_replicas(world: "World") -> None:
    await world.worker(hub=ListedHub)
    await world.gateway.desire(replicas=(replica(world),))
    await reported(world.gateway, lambda found: [r.state for r in found] == ["ready"])
    assert world.gateway.socket is not None
    await world.gateway.socket.close()
    await world.gateway.until(lambda: len(world.gateway.hellos) > 1)
    assert [r.state for r in world.gateway.hellos[-1].replicas or ()] == ["ready"]


async def test_a_worker_of_one_tenant_says_whose_code_its_replicas_are(
    world: "World",
) -> None:
    agent = await world.worker(hub=ListedHub)
    agent._shape = msgspec.structs.replace(agent._shape, single_tenant=True)
    opening = msgspec.structs.replace(
        world.prewarm("test.noop"),
        engine="code.component",
        signature_params={"namespace": "team-a"},
    )
    one = ServingReplica("team-a/ask/rank/r1/0", "team-a/ask", "rank", "r1", opening)
    await world.gateway.desire(replicas=(one,))
    await reported(world.gateway, bool)
    assert world.gateway.socket is not None
    await world.gateway.socket.close()
    await world.gateway.until(lambda: len(world.gateway.hellos) > 1)
    assert world.gateway.hellos[-1].code_tenant == "team-a"


async def test_a_worker_without_a_hub_refuses_replicas_and_says_why(world: "World") -> None:
    agent = await world.worker()
    assert world.gateway.hellos[0].replicas is msgspec.UNSET
    await world.gateway.desire(replicas=(replica(world),))
    (refused,) = await reported(world.gateway, bool)
    assert (refused.state, "has no hub" in refused.reason) == ("failed", True)
    assert list(agent.hosts) == []
    end = await world.gateway.do(world.assignment("test.noop"))
    assert end.failure is None
