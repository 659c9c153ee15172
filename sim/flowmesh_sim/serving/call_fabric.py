"""Routers, the links to hubs, and clients of simulated services.

Frames of one link arrive in order, after a random delay, so that routers decide on reports that are
old by then. A hub or a router may end at any time.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowmesh_core.serving.route.call_events import (
    PIECE,
    AbortCall,
    AnswerCall,
    CallArrived,
    CallCancelled,
    CallReplied,
    HubLost,
    LoadsReported,
    RefuseCall,
    RouterCommand,
    RouterEvent,
    SendCall,
)
from flowmesh_core.serving.route.call_router import AdmissionLimits, CallRouter
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.kernel.violation import violated
from flowmesh_sim.serving.call_book import BROKEN, CANCELLED, CallBook
from flowmesh_sim.serving.sim_hub import PATH, SimHub

DELAY_S = (0.0002, 0.004)
"""The delay of a frame between router and hub."""
NOTICED_S = 0.3
"""Until a router or a hub notices that the other has ended: three missed beats."""
GRACE_S = 1.0
"""After a call's deadline its router gives up: its hub does not answer."""


@dataclass(frozen=True, slots=True)
class SimCall:
    """A call on its way.

    Attributes:
        units: work that it takes.
    """

    call_id: str
    service: str
    tenant: str
    deadline_s: float
    units: float
    key: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a router was given, and what it did."""

    at_s: float
    event: RouterEvent
    commands: tuple[RouterCommand, ...]


@dataclass(slots=True, eq=False)
class SimRouter:
    """One process of a router.

    Attributes:
        machine: makes its decisions.
        is_lost: whether the process has ended.
        log: everything that it decided; None where that is not wanted.
    """

    name: str
    machine: CallRouter
    is_lost: bool = False
    log: list[LogEntry] | None = None
    calls: dict[str, tuple[SimCall, Timer]] = field(default_factory=dict)


class CallFabric:
    """All routers and hubs of a simulation.

    Attributes:
        book: the calls.
        routers: those that run, and those that ran.
        hubs: those that run.
    """

    def __init__(
        self,
        engine: Environment,
        rng: random.Random,
        routers: int = 1,
        limits: Mapping[str, AdmissionLimits] | None = None,
        *,
        logs: bool = False,
    ) -> None:
        """Starts routers.

        Args:
            engine: virtual time.
            rng: draws delays, and which router a client uses.
            routers: how many.
            limits: of services, for admission.
            logs: whether routers keep a log.
        """
        self.book = CallBook()
        self.routers: list[SimRouter] = []
        self.hubs: dict[str, SimHub] = {}
        self._engine = engine
        self._rng = rng
        self._limits = limits or {}
        self._logs = logs
        self._arrived_s: dict[tuple[str, str, bool], float] = {}
        for _ in range(routers):
            self.start_router()

    # -- clients ---------------------------------------------------------------------------------

    def ask(self, call: SimCall) -> None:
        """A client sends a call to one of the routers."""
        running = [r for r in self.routers if not r.is_lost]
        self.book.send(call.call_id, self._engine.now_s)
        if not running:
            self.book.end(call.call_id, BROKEN, self._engine.now_s)
            return
        router = self._rng.choice(running)
        now_s = self._engine.now_s
        timer = self._engine.at(call.deadline_s + GRACE_S, self._give_up, router, call.call_id)
        router.calls[call.call_id] = (call, timer)
        arrived = CallArrived(
            call.call_id, call.service, PATH, call.tenant, call.deadline_s - now_s, call.key
        )
        self._apply(router, arrived)

    def cancel(self, call_id: str) -> None:
        """A client leaves before its answer."""
        for router in self.routers:
            if not router.is_lost and call_id in router.calls:
                self._apply(router, CallCancelled(call_id))
                self._end(router, call_id, CANCELLED)

    def _give_up(self, router: SimRouter, call_id: str) -> None:
        if not router.is_lost and call_id in router.calls:
            self._apply(router, CallCancelled(call_id))
            self._end(router, call_id, "deadline")

    # -- hubs ------------------------------------------------------------------------------------

    def connect(self, hub: SimHub) -> None:
        """Connects a new hub to every router."""
        self.hubs[hub.name] = hub
        self.report(hub)

    def report(self, hub: SimHub) -> None:
        """Sends a hub's loads to every router."""
        for router in self.routers:
            self._deliver(hub, router, LoadsReported(hub.name, hub.loads()))

    def reply(self, hub: SimHub, router: SimRouter, call_id: str, outcome: str) -> None:
        """Sends a reply to a router."""
        self._deliver(hub, router, CallReplied(hub.name, call_id, outcome))

    def hub_lost(self, hub: SimHub) -> None:
        """Has every router notice that a hub has ended."""
        del self.hubs[hub.name]
        for router in self.routers:
            self._engine.after(NOTICED_S, self._apply, router, HubLost(hub.name))

    def check_ended(self) -> None:
        """Checks, once no call is open, that nothing holds one any more.

        Raises:
            InvariantError: a call has no answer, or a router or a hub still has it.
        """
        self.book.check_ended()
        for router in self.routers:
            if not router.is_lost and router.machine.in_flight:
                violated("calls", f"{router.name} has {router.machine.in_flight} calls at the end")

    # -- routers ---------------------------------------------------------------------------------

    def start_router(self) -> None:
        """Starts another router, to which all hubs connect."""
        log: list[LogEntry] | None = [] if self._logs else None
        router = SimRouter(f"router-{len(self.routers)}", CallRouter(self._limits), log=log)
        self.routers.append(router)
        for hub in self.hubs.values():
            self._deliver(hub, router, LoadsReported(hub.name, hub.loads()))

    def stop_router(self, router: SimRouter) -> None:
        """Ends a router's process; the connections of its clients break."""
        router.is_lost = True
        for call_id in list(router.calls):
            self._end(router, call_id, BROKEN)
        for hub in self.hubs.values():
            self._engine.after(NOTICED_S, hub.forget, router)

    def _deliver(self, hub: SimHub, router: SimRouter, event: RouterEvent) -> None:
        self._in_order(hub, router, False, self._from_hub, hub, router, event)

    def _from_hub(self, hub: SimHub, router: SimRouter, event: RouterEvent) -> None:
        if not hub.is_lost:
            self._apply(router, event)

    def _in_order(
        self, hub: SimHub, router: SimRouter, to_hub: bool, call: Callable[..., None], *args: object
    ) -> None:
        link = (hub.name, router.name, to_hub)
        at_s = self._engine.now_s + self._rng.uniform(*DELAY_S)
        self._arrived_s[link] = at_s = max(at_s, self._arrived_s.get(link, 0.0))
        self._engine.at(at_s, call, *args)

    def _apply(self, router: SimRouter, event: RouterEvent) -> None:
        if router.is_lost:
            return
        commands = router.machine.apply(event, self._engine.now_s)
        if router.log is not None:
            router.log.append(LogEntry(self._engine.now_s, event, tuple(commands)))
        for command in commands:
            self._perform(router, command)

    def _perform(self, router: SimRouter, command: RouterCommand) -> None:
        match command:
            case SendCall():
                call, _ = router.calls[command.call_id]
                hub = self.hubs.get(command.hub)
                if hub is not None:
                    args = (router, call, command.replica_id)
                    self._in_order(hub, router, True, hub.receive, *args)
            case AbortCall():
                hub = self.hubs.get(command.hub)
                if hub is not None:
                    self._in_order(hub, router, True, hub.abort, command.call_id)
            case RefuseCall():
                self._end(router, command.call_id, command.reason)
            case AnswerCall(outcome=outcome) if outcome != PIECE:
                self._end(router, command.call_id, outcome)

    def _end(self, router: SimRouter, call_id: str, outcome: str) -> None:
        self.book.end(call_id, outcome, self._engine.now_s)
        _, timer = router.calls.pop(call_id)
        cancel(timer)
