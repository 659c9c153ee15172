"""Requests through a diamond of stages on workers that come and go, over a network that loses,
repeats and delays messages; and an oracle that sees every execution.

Product code decides routes and joins. Everything else, and what is right, is here.
"""

import heapq
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flowmesh_core.stages.joins import JoinTable, MatchedSet
from flowmesh_core.stages.route import RequestRoute, RouteOption, route_request
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph, Stage

DIAMOND = LoadedGraph(
    ServiceGraph(
        (
            Stage("a", "text", "/components/text", {"x": "request.q"}),
            Stage("b", "image", "/components/image", {"x": "request.q"}),
            Stage("c", "cross", "/components/cross", {"a": "a", "b": "b", "q": "request"}),
            Stage("d", "tail", "/components/tail", {"c": "c"}),
        ),
        {"out": "d"},
    )
)
_COMPONENTS = ("text", "image", "cross", "tail")
_RETRY_S = 50.0


class Made(NamedTuple):
    """A value: of which request, by which execution."""

    request: str
    version: int
    source: str


@dataclass
class Network:
    """One simulated installation.

    Attributes:
        sabotage: ``per-task`` chooses a stage's place for each sender by itself; ``no-version``
            forgets the version of the route.
        mixed: executions with a set that is not of one request and one route.
        moved: stages that ran in two places of one route.
    """

    seed: int
    sabotage: str = ""
    mixed: int = 0
    moved: int = 0
    replies: Counter[str] = field(default_factory=Counter)
    routed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._now_s = 0.0
        self._events: list[Any] = []
        self._numbers = itertools.count()
        self._tables: dict[str, JoinTable[Made]] = {}
        self._routes: dict[str, RequestRoute] = {}
        self._ran: dict[tuple[str, int, str], str] = {}
        for number in range(4):
            self._tables[f"w{number}"] = JoinTable()
        self._next_worker = 4

    def run(self, requests: int) -> None:
        """Runs requests until all have a reply, or ten tries."""
        for number in range(requests):
            self._later(number * 0.05, self._route, f"r{number}")
        for at in range(1, requests // 200):
            self._later(at * 10.0, self._replace_worker)
        while self._events:
            self._now_s, _, act, given = heapq.heappop(self._events)
            act(*given)

    # -- the router ------------------------------------------------------------------------------

    def _route(self, request: str) -> None:
        if self.replies[request] or self.routed[request] == 10:
            return
        self.routed[request] += 1
        route = self._chosen(self.routed[request])
        self._routes[request] = route
        self._later(_RETRY_S, self._route, request)
        for worker in route.workers:
            self._send(worker, self._opened, request, route)
        for stage in DIAMOND.consumers["request"]:
            self._deliver(route, request, stage, Made(request, route.version, "request"))

    def _chosen(self, version: int) -> RequestRoute:
        options = [
            RouteOption(f"{worker}/{component}", worker, self._dice.random())
            for worker in self._tables
            for component in _COMPONENTS
        ]
        by_component = {c: [o for o in options if o.replica_id.endswith(c)] for c in _COMPONENTS}
        return route_request(DIAMOND, by_component, version)

    # -- a hub -----------------------------------------------------------------------------------

    def _opened(self, worker: str, request: str, route: RequestRoute) -> None:
        here = [s.stage for s in route.stages if s.worker == worker]
        if self.sabotage == "per-task":
            here = list(DIAMOND.stages)
        needs = {stage: DIAMOND.stages[stage].needs for stage in here}
        version = 1 if self.sabotage == "no-version" else route.version
        for done in self._tables[worker].open(request, version, needs):
            self._execute(worker, request, route, done)

    def _arrived(
        self, worker: str, request: str, route: RequestRoute, stage: str, value: Made
    ) -> None:
        version = 1 if self.sabotage == "no-version" else route.version
        done = self._tables[worker].add(request, version, stage, value.source, value)
        if done is not None:
            self._execute(worker, request, route, done)

    def _execute(
        self, worker: str, request: str, route: RequestRoute, done: MatchedSet[Made]
    ) -> None:
        wanted = {Made(request, route.version, s) for s in DIAMOND.stages[done.stage].needs}
        self.mixed += set(done.values.values()) != wanted
        place = self._ran.setdefault((request, route.version, done.stage), worker)
        self.moved += place != worker
        value = Made(request, route.version, done.stage)
        for consumer in DIAMOND.consumers[done.stage]:
            if consumer == "reply":
                self._later(self._delay_s(), self._replied, request)
            else:
                self._deliver(route, request, consumer, value)

    def _replied(self, request: str) -> None:
        if not self.replies[request]:
            self.replies[request] += 1
            for table in self._tables.values():
                table.close(request)

    # -- the network -----------------------------------------------------------------------------

    def _deliver(self, route: RequestRoute, request: str, stage: str, value: Made) -> None:
        place = route.place(stage)
        assert place is not None
        worker = place.worker
        if self.sabotage == "per-task":
            worker = self._dice.choice(list(self._tables))
        self._send(worker, self._arrived, request, route, stage, value)

    def _send(self, worker: str, act: Any, *given: Any) -> None:
        chance = self._dice.random()
        for _ in range(0 if chance < 0.01 else 2 if chance < 0.05 else 1):
            self._later(self._delay_s(), self._at, worker, act, given)

    def _at(self, worker: str, act: Any, given: tuple[Any, ...]) -> None:
        if worker in self._tables:
            act(worker, *given)

    def _replace_worker(self) -> None:
        self._tables.pop(self._dice.choice(list(self._tables)))
        for _ in range(1 if len(self._tables) > 3 else 2):
            self._tables[f"w{self._next_worker}"] = JoinTable()
            self._next_worker += 1

    def _delay_s(self) -> float:
        return self._dice.expovariate(1.0)

    def _later(self, in_s: float, act: Any, *given: Any) -> None:
        event = (self._now_s + in_s, next(self._numbers), act, given)
        heapq.heappush(self._events, event)
