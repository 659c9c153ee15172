"""The router process, the pure machine and the simulator do the same about the same events.

A simulated world with old reports, full replicas and lost hubs is recorded. Its log is given to a
fresh machine, and to the router's own code with links that record what is sent.
"""

import asyncio
from collections.abc import Iterable

import pytest
from tests.flowmesh_sim.serving.call_world import CallWorld

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    FULL,
    UNKNOWN_REPLICA,
    Abort,
    CallEnded,
    CallRefused,
    FromRouter,
    ServiceCall,
)
from flowmesh_core.serving.route.call_events import (
    AbortCall,
    AnswerCall,
    CallArrived,
    CallCancelled,
    CallReplied,
    HubLost,
    LoadsReported,
    RefuseCall,
    RouterCommand,
    SendCall,
)
from flowmesh_core.serving.route.call_router import CallRouter
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_sim.serving.call_fabric import LogEntry

CODES = {
    FULL: "overloaded",
    "lost": "replica_lost",
    UNKNOWN_REPLICA: "no_replica",
    "no-replica": "no_replica",
}


def recorded(seed: int) -> list[list[LogEntry]]:
    """The logs of the routers of a world in which everything goes wrong."""
    world = CallWorld(hubs=3, routers=2, seed=seed)
    world.ask(80.0, seconds=6.0, kind="bursts", keys=12)
    world.engine.at(2.0, world.fabric.hubs["hub-0"].stop)
    world.engine.at(2.5, world.start_hub, 3)
    for n in range(0, 300, 7):
        world.engine.at(0.4 + n / 80, world.fabric.cancel, f"c{n}")
    world.run()
    return [router.log or [] for router in world.fabric.routers]


class Link:
    """A link that records what the router sends."""

    def __init__(self, hub: str, sent: list[RouterCommand]) -> None:
        self.hub = self.worker = hub
        self._sent = sent

    def answer(self, message: FromRouter) -> None:
        if isinstance(message, ServiceCall):
            self._sent.append(SendCall(self.hub, message.call_id, message.replica_id))
        elif isinstance(message, Abort):
            self._sent.append(AbortCall(self.hub, message.call_id))


class Embedded:
    """The router's own code, without sockets."""

    def __init__(self) -> None:
        self.replicas = ReplicaTable(lambda *_: True)
        self.calls = Calls(self.replicas, replica_wait_s=0.0)
        self.sent: list[RouterCommand] = []
        self._links: dict[str, Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def apply(self, entry: LogEntry) -> list[RouterCommand]:
        """Gives it an event; returns what it did once nothing moves any more."""
        self.sent.clear()
        self._begin(entry)
        for _ in range(8):
            await asyncio.sleep(0)
        return list(self.sent)

    def _begin(self, entry: LogEntry) -> None:
        match entry.event:
            case CallArrived() as call:
                self._tasks[call.call_id] = asyncio.create_task(self._call(call))
            case CallCancelled(call_id):
                self._tasks[call_id].cancel()
            case LoadsReported(hub, loads):
                self.replicas.update(self._link(hub), loads)  # type: ignore[arg-type]
            case HubLost(hub):
                self.replicas.remove(self._link(hub))  # type: ignore[arg-type]
                self.calls.lost(self._link(hub))  # type: ignore[arg-type]
            case CallReplied(hub, call_id, outcome):
                refuses = outcome in (FULL, UNKNOWN_REPLICA)
                frame = (CallRefused if refuses else CallEnded)(call_id, outcome)
                self.calls.reply(self._link(hub), frame)  # type: ignore[arg-type]

    async def _call(self, call: CallArrived) -> None:
        asked = ServiceCall(call.call_id, "", call.path, "m", b"", False, 1000, call.tenant, seed=1)
        pending = self.calls.begin(call.service, asked, 60.0, call.key)
        try:
            reply = await self.calls.first(pending)
        except OpenAiError as error:
            self.sent.append(RefuseCall(call.call_id, error.code or ""))
            return
        finally:
            self.calls.end(pending)
        assert isinstance(reply, CallEnded)
        self.sent.append(AnswerCall(call.call_id, reply.outcome))

    def _link(self, hub: str) -> Link:
        return self._links.setdefault(hub, Link(hub, self.sent))


def with_codes(commands: Iterable[RouterCommand]) -> list[RouterCommand]:
    """The commands, with OpenAI's codes for reasons."""
    return [
        RefuseCall(c.call_id, CODES[c.reason]) if isinstance(c, RefuseCall) else c for c in commands
    ]


async def differences(log: list[LogEntry]) -> int:
    """Returns about how many events the embedded router does something else."""
    router = Embedded()
    return sum([await router.apply(entry) != with_codes(entry.commands) for entry in log])


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_router_does_what_the_simulated_one_did(seed: int) -> None:
    logs = recorded(seed)
    kinds = {type(c) for log in logs for entry in log for c in entry.commands}
    assert kinds == {SendCall, AbortCall, AnswerCall, RefuseCall}
    for log in logs:
        assert await differences(log) == 0


def test_a_log_gives_a_fresh_machine_the_same_commands() -> None:
    for log in recorded(1):
        machine = CallRouter()
        for entry in log:
            assert tuple(machine.apply(entry.event, entry.at_s)) == entry.commands


async def test_a_router_that_chooses_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = ReplicaTable.choose
    monkeypatch.setattr(
        ReplicaTable, "choose", lambda *args: choose(*args[:4], "always the same", args[5])
    )
    (log, *_) = recorded(1)
    assert await differences(log) > 0


async def test_a_router_that_ignores_keys_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = ReplicaTable.choose
    monkeypatch.setattr(ReplicaTable, "choose", lambda *args: choose(*args[:5], ""))
    (log, *_) = recorded(1)
    assert await differences(log) > 0
