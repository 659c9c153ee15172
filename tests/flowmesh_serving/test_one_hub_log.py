"""The hub's own code and the simulated hub do the same about the same events.

The log of a simulated hub is given to the code of the real one, with links that record what is sent
to routers and to engine hosts. Its clock shows the times of the log.
"""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.flowmesh_serving.hub_log import (
    CALLS_MAX,
    TENANTS,
    Aborted,
    Admitted,
    Answered,
    HostLost,
    HubEvent,
    HubTurn,
    RouterLost,
    Sent,
    Withdrawn,
    by_replica,
    recorded_hub,
)
from tests.flowmesh_sim.serving.call_world import SERVICE
from tests.virtual_time import VirtualTime, in_virtual_time

from flowmesh_core.protocol.serving import (
    DEADLINE,
    FULL,
    LOST,
    OK,
    UNKNOWN_REPLICA,
    Abort,
    CallEnded,
    CallHostHello,
    CallRefused,
    ServiceCall,
)
from flowmesh_core.serving.queue.call_queue import CallQueue
from flowmesh_sim.serving.sim_hub import PATH
from flowmesh_worker.ipc.hub_frames import AdmitReplica
from flowmesh_worker.serving.instance_link import InstanceLink
from flowmesh_worker.serving.service_hub import ServiceHub

FRESH = pytest.param(random.randrange(1 << 30), id="fresh")
SALTS = dict.fromkeys(TENANTS, "salt")


class Router:
    """A link to a router that records what is sent."""

    is_congested = False

    def __init__(self, name: str, replies: list[tuple[str, str, str]]) -> None:
        self._name = name
        self._replies = replies

    def send(self, message: Any) -> None:
        if isinstance(message, CallEnded):
            self._replies.append((self._name, message.call_id, message.outcome))
        elif isinstance(message, CallRefused):
            self._replies.append((self._name, message.call_id, message.reason))


class Host:
    """A connection to a host that records the calls that run there."""

    def __init__(self) -> None:
        self.running: set[str] = set()

    def send(self, message: Any) -> None:
        if isinstance(message, ServiceCall):
            self.running.add(message.call_id)
        elif isinstance(message, Abort):
            self.running.remove(message.call_id)


class RealHub:
    """The code of a worker's hub, without sockets."""

    def __init__(self) -> None:
        self.hub = ServiceHub("worker", lambda _: None)
        self.replies: list[tuple[str, str, str]] = []
        self._routers: dict[str, Router] = {}
        self._hosts: dict[int, tuple[InstanceLink, Host]] = {}

    async def does(self, turn: HubTurn) -> HubTurn:
        """Gives it the events of a moment; returns what it did."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTime)
        loop.now_s = turn.at_s
        self.replies.clear()
        for event in turn.events:
            await self._apply(event)
        for _ in range(3):  # deadlines that have passed
            await asyncio.sleep(0)
        running = frozenset(c for _, host in self._hosts.values() for c in host.running)
        loads = by_replica(self.hub._loads())
        return HubTurn(turn.at_s, turn.events, list(self.replies), running, loads)

    async def _apply(self, event: HubEvent) -> None:
        match event:
            case Admitted():
                await self._admit(event)
            case Withdrawn(replica_id):
                self.hub.withdraw(replica_id)
            case HostLost(instance):
                self._hosts.pop(instance)[0]._lost()
            case Sent(router, call, replica_id):
                budget_ms: Any = (call.deadline_s - asyncio.get_running_loop().time()) * 1000
                message = ServiceCall(
                    call.call_id, replica_id, PATH, "m", b"", False, budget_ms, call.tenant, seed=1
                )
                self.hub.receive(self._router(router), message)
            case Aborted(call_id):
                self._abort(call_id)
            case RouterLost(router):
                self.hub.forget(self._router(router))
            case Answered(call_id):
                self._answer(call_id)

    def _abort(self, call_id: str) -> None:
        if (routed := self.hub._calls.get(call_id)) is not None:
            self.hub.receive(routed.link, Abort(call_id))

    def _answer(self, call_id: str) -> None:
        for instance, host in self._hosts.values():
            if call_id in host.running:
                host.running.remove(call_id)
                instance._receive(CallEnded(call_id, OK, tokens_out=1))

    async def _admit(self, event: Admitted) -> None:
        path = f"host-{event.instance}"
        if event.instance not in self._hosts:
            instance, host = InstanceLink(self.hub._report_soon), Host()
            instance._channel = host  # type: ignore[assignment]
            instance._receive(CallHostHello((PATH,), CALLS_MAX))
            self._hosts[event.instance] = instance, host
            self.hub._instances[path] = instance
        await self.hub.admit(AdmitReplica(event.replica_id, SERVICE, path, 0, SALTS))

    def _router(self, name: str) -> Any:
        return self._routers.setdefault(name, Router(name, self.replies))


async def different_turns(log: list[HubTurn]) -> list[tuple[HubTurn, HubTurn]]:
    """Returns the moments at which the real hub does something else, with what it does."""
    hub = RealHub()
    does = [(turn, await hub.does(turn)) for turn in log]
    return [(turn, done) for turn, done in does if turn != done]


@pytest.mark.parametrize("seed", [1, 2, 3, FRESH])
@in_virtual_time
async def test_the_hub_does_what_the_simulated_one_did(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    log = recorded_hub(seed)
    kinds = {type(event) for turn in log for event in turn.events}
    assert kinds == {Admitted, Withdrawn, HostLost, Sent, Aborted, RouterLost, Answered}
    outcomes = Counter(outcome for turn in log for _, _, outcome in turn.replies)
    assert outcomes.keys() >= {OK, FULL, DEADLINE, LOST, UNKNOWN_REPLICA}
    different = await different_turns(log)
    assert not different, f"{different[0][0]}\n{different[0][1]}"


@in_virtual_time
async def test_a_hub_whose_queue_keeps_no_place_for_other_tenants_is_noticed() -> None:
    log = recorded_hub(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallQueue, "_places_of", lambda queue, _: queue.queued_max)
        assert await different_turns(log)
