"""The leader's Lease on a real API server, with a clock that tests can move."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from tests.flowmesh_operator.api_server import ApiServer
from tests.flowmesh_operator.replicas import connected

from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.kinds import LEASES
from flowmesh_operator.kube.lease import LeadershipLostError, Lease, boot_clock
from flowmesh_operator.settings import OperatorSettings

pytestmark = pytest.mark.slow


@dataclass
class Replica:
    """A candidate for the lease, with its own clock."""

    lease: Lease
    ahead_s: list[float]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, api: KubeClient) -> "asyncio.Task[None]":
        return asyncio.create_task(self.lease.hold(api, self.stop, self.held.set))


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    async with connected(api_server) as found:
        yield found


@pytest.fixture
def replica(namespace: str) -> Callable[[str], Replica]:
    def make(name: str) -> Replica:
        ahead_s = [0.0]
        settings = OperatorSettings(
            store="", key_ring=KeyRing.of(bytes(32)), namespace=namespace, identity=name,
            lease_s=3.0, renew_deadline_s=2.0, retry_s=0.2,
        )  # fmt: skip
        return Replica(Lease(settings, lambda: boot_clock() + ahead_s[0]), ahead_s)

    return make


async def renewal(api: KubeClient, namespace: str) -> str:
    """Returns the time of the lease's last renewal."""
    lease = await api.get(*LEASES, namespace, "flowmesh-operator")
    return str(lease["spec"]["renewTime"])


async def test_one_replica_holds_the_lease_and_releases_it_to_the_next(
    api: KubeClient, replica: Callable[[str], Replica], namespace: str
) -> None:
    first, second = replica("a"), replica("a")  # a restarted container has its pod's name
    with pytest.raises(LeadershipLostError):
        first.lease.check()
    holding = first.hold(api)
    async with asyncio.timeout(180):
        await first.held.wait()
        first.lease.check()
        waiting = second.hold(api)
        for _ in range(2):  # renewed twice: time enough for one that does not wait
            before = await renewal(api, namespace)
            while True:
                if await renewal(api, namespace) != before:
                    break
                await asyncio.sleep(0.1)
        assert not second.held.is_set()
        first.stop.set()
        await holding
        with pytest.raises(LeadershipLostError):
            first.lease.check()
        await second.held.wait()
        second.stop.set()
        await waiting
    lease = await api.get(*LEASES, namespace, "flowmesh-operator")
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] == 1


async def test_a_holder_frozen_beyond_the_deadline_loses_leadership_before_any_request(
    api: KubeClient, replica: Callable[[str], Replica]
) -> None:
    frozen = replica("a")
    holding = frozen.hold(api)
    async with asyncio.timeout(180):
        await frozen.held.wait()
        frozen.ahead_s[0] = 2.0  # thawed: no request was sent since
        with pytest.raises(LeadershipLostError, match="not renewed in time"):
            frozen.lease.check()
        with pytest.raises(LeadershipLostError):
            await holding


async def test_a_lease_that_another_has_taken_is_not_renewed(
    api: KubeClient, replica: Callable[[str], Replica], namespace: str
) -> None:
    robbed = replica("a")
    holding = robbed.hold(api)
    async with asyncio.timeout(180):
        await robbed.held.wait()
        await api.patch(*LEASES, namespace, "flowmesh-operator", {"spec": {"holderIdentity": "b"}})
        with pytest.raises(LeadershipLostError):
            await holding
    lease = await api.get(*LEASES, namespace, "flowmesh-operator")
    assert lease["spec"]["holderIdentity"] == "b"
