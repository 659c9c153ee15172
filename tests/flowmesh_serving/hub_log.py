"""A world of simulated hubs that records what each hub is given and what it does.

Tenants send more than the hubs take, leave, and wait until their deadline. Replicas come and go,
and hosts and routers are lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.flowmesh_sim.serving.call_world import SERVICE, CallWorld

from flowmesh_core.protocol.serving import OK, ReplicaLoad
from flowmesh_sim.serving.call_arrivals import arrival_times
from flowmesh_sim.serving.call_fabric import SimCall
from flowmesh_sim.serving.sim_engines import DecodingEngine
from flowmesh_sim.serving.sim_hub import SimHub

CALLS_MAX = 4
TENANTS = ("team-a", "team-b", "team-c")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The agent has the hub take calls of a replica."""

    replica_id: str
    instance: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The agent has the hub take no further calls of a replica."""

    replica_id: str


@dataclass(frozen=True, slots=True)
class HostLost:
    """The host of an instance has ended."""

    instance: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A router sends a call."""

    router: str
    call: SimCall
    replica_id: str


@dataclass(frozen=True, slots=True)
class Aborted:
    """A router does not want a call any more."""

    call_id: str


@dataclass(frozen=True, slots=True)
class RouterLost:
    """A router is gone."""

    router: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The host has answered a call."""

    call_id: str


HubEvent = Admitted | Withdrawn | HostLost | Sent | Aborted | RouterLost | Answered


@dataclass(slots=True)
class HubTurn:
    """All that happens at one moment.

    Attributes:
        events: what the hub is given; none where a deadline passes.
        replies: what it sends, as router, call and outcome.
        running: the calls that run in its instances afterwards.
        loads: what it reports of its replicas afterwards.
    """

    at_s: float
    events: list[HubEvent] = field(default_factory=list)
    replies: list[tuple[str, str, str]] = field(default_factory=list)
    running: frozenset[str] = frozenset()
    loads: tuple[ReplicaLoad, ...] = ()


class RecordedHub(SimHub):
    """A simulated hub that keeps a log."""

    def __init__(self, world: CallWorld, name: str) -> None:
        super().__init__(world.engine, name, world.fabric, lambda *_: None)
        self.log: list[HubTurn] = []
        self._reply = world.fabric.reply
        world.fabric.reply = self._record_reply  # type: ignore[method-assign]

    def _record_reply(self, hub: SimHub, router: Any, call_id: str, outcome: str) -> None:
        if hub is self:
            self.log[-1].replies.append((router.name, call_id, outcome))
        self._reply(hub, router, call_id, outcome)

    @contextmanager
    def _recorded(self, *events: HubEvent) -> Iterator[None]:
        now_s = self._engine.now_s
        if not self.log or self.log[-1].at_s != now_s:
            self.log.append(HubTurn(now_s))
        turn = self.log[-1]
        turn.events += events
        yield
        engines: list[Any] = list(self._instances.values())
        turn.running = frozenset(c for engine in engines for c in engine._queue.running)
        turn.loads = by_replica(self.loads())

    def admit(self, replica_id: str, service: str, instance: int, make: Any) -> None:
        with self._recorded(Admitted(replica_id, instance)):
            super().admit(replica_id, service, instance, make)

    def withdraw(self, replica_id: str) -> None:
        with self._recorded(Withdrawn(replica_id)):
            super().withdraw(replica_id)

    def host_lost(self, instance: int) -> None:
        with self._recorded(HostLost(instance)):
            super().host_lost(instance)

    def receive(self, router: Any, call: SimCall, replica_id: str) -> None:
        with self._recorded(Sent(router.name, call, replica_id)):
            super().receive(router, call, replica_id)

    def abort(self, call_id: str) -> None:
        with self._recorded(Aborted(call_id)):
            super().abort(call_id)

    def forget(self, router: Any) -> None:
        with self._recorded(RouterLost(router.name)):
            for call_id in [c for c, found in self._calls.items() if found.router is router]:
                super().abort(call_id)

    def _ended(self, call_id: str, outcome: str) -> None:
        known = call_id in self._calls
        with self._recorded(*([Answered(call_id)] if outcome == OK and known else [])):
            super()._ended(call_id, outcome)


def by_replica(loads: tuple[ReplicaLoad, ...]) -> tuple[ReplicaLoad, ...]:
    """Returns loads in an order that does not depend on when replicas were admitted."""
    return tuple(sorted(loads, key=lambda load: load.replica_id))


def recorded_hub(seed: int) -> list[HubTurn]:
    """Returns the log of a hub of a world in which everything goes wrong."""
    world = CallWorld(hubs=1, routers=2, seed=seed)
    hub = RecordedHub(world, "recorded")

    def make(ended: Any) -> DecodingEngine:
        return DecodingEngine(world.engine, CALLS_MAX, 0.02, 0.002, ended)

    world.fabric.connect(hub)
    for n in range(3):
        hub.admit(f"{SERVICE}/recorded/{n}", SERVICE, n // 2, make)
    at = world.engine.at
    for n, at_s in enumerate(arrival_times("bursts", 100.0, 8.0, world.rng)):
        tenant = world.rng.choices(TENANTS, (8, 2, 1))[0]
        within_s = world.rng.choice([0.6, 3.0])
        call = SimCall(f"c{n}", SERVICE, tenant, 1 + at_s + within_s, world.rng.uniform(5, 25))
        at(1 + at_s, world.fabric.ask, call)
        if n % 7 == 0:
            at(1 + at_s + world.rng.uniform(0.01, 0.5), world.fabric.cancel, call.call_id)
    for n in range(40):
        at_s = 1.5 + n * 0.2
        at(at_s, hub.withdraw, f"{SERVICE}/recorded/0")
        at(at_s + 0.1, hub.admit, f"{SERVICE}/recorded/0", SERVICE, 0, make)
    at(5.0, hub.host_lost, 1)
    at(5.5, hub.admit, f"{SERVICE}/recorded/2", SERVICE, 2, make)
    at(7.0, world.fabric.stop_router, world.fabric.routers[0])
    world.run()
    return hub.log
