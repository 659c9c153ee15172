"""Requests whose last stage streams, through the router's own code, in a network of lost workers.

Links between router and hubs keep their order, as sockets do; values between hubs are lost,
repeated and delayed. Workers come and go. What a client gets is compared with what was sent.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    EndRequest,
    Piece,
    ReplicaLoad,
    RunStages,
    StageFailed,
    StageValue,
)
from flowmesh_core.stages.joins import JoinTable, MatchedSet
from flowmesh_core.stages.route import RequestRoute
from flowmesh_core.stages.service_graph import (
    CHAT,
    COMPONENTS_PATH,
    REPLY,
    LoadedGraph,
    ServiceGraph,
    Stage,
)
from flowmesh_core.stages.values import REQUEST
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.stages.staged_requests import UNROUTED, Event, StagedRequests

SERVICE = "team-a/ask"
WORKERS = {"w": ("text", "image"), "v": ("writer", "check")}
"""Kinds of workers, each with its components: every route has one of each, at least."""
GRAPH = LoadedGraph(
    ServiceGraph(
        (
            Stage("a", "text", f"{COMPONENTS_PATH}text", {"x": "request.q"}),
            Stage("b", "image", f"{COMPONENTS_PATH}image", {"x": "request.q"}),
            Stage("said", "writer", CHAT, {"a": "a", "b": "b"}, stream=True),
            Stage("checked", "check", f"{COMPONENTS_PATH}check", {"b": "b"}),
        ),
        {"text": "said", "checked": "checked"},
    )
)
PIECES = 6
NOTICED_S = 2.0
TIMEOUT_S = 60.0


@dataclass(eq=False)
class Hub:
    """A worker's hub, and the router's link to it.

    Attributes:
        runs: the requests that it has, by id.
        arrives_s: when the last frame arrives there, and at the router.
    """

    network: "StreamNetwork"
    worker: str
    incarnation: str = ""
    peer: str = ""
    joins: JoinTable[str] = field(default_factory=JoinTable)
    runs: dict[str, RunStages] = field(default_factory=dict)
    arrives_s: dict[str, float] = field(default_factory=dict)

    # -- the router's end ------------------------------------------------------------------------

    def use_graph(self, graph: LoadedGraph) -> None:
        assert graph is GRAPH

    def answer(self, message: Any) -> None:
        self.network.in_order(self, "to hub", self.receive, message)

    defer = answer

    # -- the hub's end ---------------------------------------------------------------------------

    def send(self, message: Any) -> None:
        self.network.in_order(self, "to router", self.network.from_hub, self, message)

    def receive(self, message: Any) -> None:
        if self.worker not in self.network.hubs:
            return
        match message:
            case RunStages(request_id=request_id, route=route):
                self.runs[request_id] = message
                needs = {p.stage: GRAPH.stages[p.stage].needs for p in self._here(route)}
                ready = self.joins.open(request_id, route.version, needs)
                for done in ready:
                    self._execute(request_id, route, done)
                for stage in GRAPH.consumers[REQUEST]:
                    if stage in needs:
                        self.add(request_id, route, stage, REQUEST)
            case EndRequest(request_id=request_id):
                self.runs.pop(request_id, None)
                self.joins.close(request_id)

    def _here(self, route: RequestRoute) -> list[Any]:
        return [place for place in route.stages if place.worker == self.worker]

    def add(self, request_id: str, route: RequestRoute, stage: str, source: str) -> None:
        done = self.joins.add(request_id, route.version, stage, source, source)
        if done is not None:
            self._execute(request_id, route, done)

    def _execute(self, request_id: str, route: RequestRoute, done: MatchedSet[str]) -> None:
        self.network.later(self.network.delay_s(), self._executed, request_id, route, done.stage, 0)

    def _executed(self, request_id: str, route: RequestRoute, stage: str, piece: int) -> None:
        run = self.runs.get(request_id)
        if run is None or run.route is not route or self.worker not in self.network.hubs:
            return
        if stage == GRAPH.streamed and piece < PIECES:
            self.send(self.network.piece(request_id, route, piece))
            again_s = self.network.delay_s() / 4
            self.network.later(again_s, self._executed, request_id, route, stage, piece + 1)
            return
        for consumer in GRAPH.consumers[stage]:
            if consumer == REPLY:
                self.send(StageValue(request_id, route.version, REPLY, stage, b""))
                continue
            place = route.place(consumer)
            assert place is not None
            if place.worker == self.worker:
                self.add(request_id, route, consumer, stage)
            else:
                self.network.to_peer(place.worker, request_id, route, consumer, stage)


@dataclass
class Client:
    """A client of one request.

    Attributes:
        text: what it got of the stream.
        end: how its request ended; empty before.
    """

    text: list[bytes] = field(default_factory=list)
    end: str = ""
    pending: Any = None


class StreamNetwork:
    """One simulated installation with the router's code.

    Attributes:
        clients: by request.
        hubs: by worker.
    """

    def __init__(self, seed: int) -> None:
        self.clients: dict[str, Client] = {}
        self.hubs: dict[str, Hub] = {}
        self.replicas = ReplicaTable(lambda *_: True)
        self.router = StagedRequests(self.replicas)
        self._dice = random.Random(seed)
        self._now_s = 0.0
        self._events: list[Any] = []
        self._numbers = itertools.count()
        self._workers = itertools.count()
        for kind in WORKERS:
            for _ in range(3):
                self._start_worker(kind)

    def run(self, requests: int) -> None:
        """Runs requests until nothing moves any more."""
        for number in range(requests):
            self.later(1.0 + number * 0.05, self._ask, f"r{number}")
        for at in range(1, requests // 400):
            self.later(at * 20.0, self._replace_worker)
        while self._events:
            self._now_s, _, act, given = heapq.heappop(self._events)
            act(*given)

    def outcomes(self) -> Counter[str]:
        """Returns how requests ended, counted."""
        return Counter(client.end for client in self.clients.values())

    def disordered(self) -> list[tuple[str, bytes]]:
        """Returns the requests whose client got something else than the stream, or its beginning.

        All pieces of one route, in order; of a request that was answered, all of them.
        """
        found = []
        for name, client in self.clients.items():
            versions = {text.split(b"/")[0] for text in client.text}
            wanted = [b"%s/%d" % (v, n) for v in versions for n in range(len(client.text))]
            whole = client.end != "ok" or len(client.text) == PIECES
            if client.text != wanted or not whole:
                found.append((name, b" ".join(client.text)))
        return found

    # -- clients ---------------------------------------------------------------------------------

    def _ask(self, request_id: str) -> None:
        client = self.clients[request_id] = Client()
        run = RunStages(request_id, "", UNROUTED, b"{}", 60_000, 0, "team-a", 1, stream=True)
        try:
            client.pending = self.router.begin(
                SERVICE, GRAPH, run, lambda event: self._happened(client, event), {}
            )
        except OpenAiError as error:
            client.end = error.code or "refused"
        self.later(TIMEOUT_S, self._give_up, client)

    def _give_up(self, client: Client) -> None:
        if not client.end:
            client.end = "deadline"
            self.router.end(client.pending)

    def _happened(self, client: Client, event: Event) -> None:
        if client.end:
            client.end = "twice"
            return
        match event:
            case Piece(data=data):
                client.text.append(data)
                self.router.add_credit(client.pending, len(data))
            case StageFailed(outcome=outcome):
                client.end = outcome
                self.later(0.0, self.router.end, client.pending)
            case MatchedSet():
                client.end = "ok"
                self.later(0.0, self.router.end, client.pending)

    # -- hubs ------------------------------------------------------------------------------------

    def _start_worker(self, kind: str) -> None:
        worker = f"{kind}{next(self._workers)}"
        hub = self.hubs[worker] = Hub(self, worker)
        loads = tuple(
            ReplicaLoad(f"{SERVICE}/{component}/{worker}", SERVICE, (), 8, 0, 0, component)
            for component in WORKERS[kind]
        )
        link: Any = hub
        self.replicas.update(link, loads)

    def _replace_worker(self) -> None:
        worker = self._dice.choice(list(self.hubs))
        self.later(NOTICED_S, self._lost, self.hubs.pop(worker))
        self._start_worker(worker[0])

    def _lost(self, hub: Hub) -> None:
        link: Any = hub
        self.replicas.remove(link)
        self.router.lost(link)

    def from_hub(self, hub: Hub, message: Any) -> None:
        """A frame arrives at the router; what a hub sent before its end may still come."""
        link: Any = hub
        self.router.reply(link, message)

    def piece(self, request_id: str, route: RequestRoute, number: int) -> Piece:
        """Returns a part of a stream, whose text names its route and its place."""
        return Piece(request_id, b"%d/%d" % (route.version, number), route.version)

    # -- the network -----------------------------------------------------------------------------

    def in_order(self, hub: Hub, way: str, act: Callable[..., None], *given: Any) -> None:
        """Delivers a frame of a link after those before it."""
        at_s = max(hub.arrives_s.get(way, 0.0), self._now_s + self.delay_s())
        hub.arrives_s[way] = at_s
        self.later(at_s - self._now_s, act, *given)

    def to_peer(self, worker: str, *given: Any) -> None:
        """Sends a value to another hub: it may be lost, or come twice."""
        chance = self._dice.random()
        for _ in range(0 if chance < 0.01 else 2 if chance < 0.05 else 1):
            self.later(self.delay_s(), self._at_peer, worker, *given)

    def _at_peer(self, worker: str, *given: Any) -> None:
        if worker in self.hubs:
            self.hubs[worker].add(*given)

    def delay_s(self) -> float:
        """Draws a delay."""
        return self._dice.expovariate(1.0)

    def later(self, in_s: float, act: Callable[..., Any], *given: Any) -> None:
        """Calls something after so many seconds."""
        heapq.heappush(self._events, (self._now_s + in_s, next(self._numbers), act, given))
