"""Requests to services with stages, from their route to their reply.

The route is fixed when a request arrives. What is lost, or refused by a full replica, is routed
again once, under a higher version, and computed again; values of the old route are dropped. So a
request is computed at least once and answered at most once.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from flowmesh_core.protocol.serving import (
    CREDIT_BYTES,
    DEADLINE,
    FAILED,
    FULL,
    LOST,
    UNKNOWN_REPLICA,
    VALUE_BYTES_MAX,
    Credit,
    EndRequest,
    Piece,
    RunStages,
    StageFailed,
    StageValue,
)
from flowmesh_core.serving.route.call_router import RETRYABLE, TRIES
from flowmesh_core.stages.joins import JoinTable, MatchedSet
from flowmesh_core.stages.route import (
    NoReplicaError,
    RequestRoute,
    RouteOption,
    route_request,
)
from flowmesh_core.stages.service_graph import REPLY, LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.errors import no_replica
from flowmesh_serving.links.hub_link import Defect, HubLink
from flowmesh_serving.stages.peer_addresses import PeerAddresses
from flowmesh_serving.time_sums import SecondsSum

if TYPE_CHECKING:
    from flowmesh_serving.stages.stage_traces import StageTrace, StageTraces

UNROUTED = RequestRoute(0, ())
_OUTCOMES = frozenset({DEADLINE, FULL, LOST, UNKNOWN_REPLICA})
_ERRORS = range(400, 600)
Event = Piece | StageFailed | MatchedSet[bytes]


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that has no reply yet.

    Attributes:
        service: ``namespace/name``.
        run: as it was sent last.
        on_event: gets what hubs send for it, and at its end what has failed.
        keys: that replicas are chosen by, by component.
        replicas: of its route.
        links: by worker of its route.
        stage_links: by stage, the hub that its route gives it to.
        avoided: replicas that have refused or lost it.
        has_streamed: whether its client may have bytes of an answer.
        unread_bytes: of the answer that is streamed, which its client has not taken yet.
        relayed: stages of its route, each with one whose value it was sent.
        is_answered: whether all values of its reply have come.
        release: of its route.
        trace: whose hubs were asked as it ended; None where no spans are sent.
    """

    service: str
    graph: LoadedGraph
    run: RunStages
    on_event: Callable[[Event], None]
    keys: Mapping[str, str]
    replicas: Sequence[RoutedReplica] = ()
    links: Mapping[str, HubLink] = field(default_factory=dict)
    stage_links: Mapping[str, HubLink] = field(default_factory=dict)
    avoided: set[str] = field(default_factory=set)
    has_streamed: bool = False
    unread_bytes: int = 0
    relayed: set[tuple[str, str]] = field(default_factory=set)
    is_answered: bool = False
    release: str = ""
    trace: "StageTrace | None" = None

    @property
    def request_id(self) -> str:
        """Its name."""
        return self.run.request_id


class _LinkedRoute(NamedTuple):
    """A route with the replicas and hubs that it names.

    Attributes:
        release: of the replicas; of several, while one follows another, all.
    """

    route: RequestRoute
    replicas: tuple[RoutedReplica, ...]
    links: dict[str, HubLink]
    stage_links: dict[str, HubLink]
    release: str


class StagedRequests:
    """All requests of a router to services with stages.

    Attributes:
        route_times: in which their replicas were chosen.
    """

    def __init__(self, replicas: ReplicaTable, traces: "StageTraces | None" = None) -> None:
        """Routes to replicas.

        Args:
            replicas: that hubs report.
            traces: of requests; None where no spans are sent.
        """
        self._traces = traces
        self.route_times = SecondsSum()
        self._replicas = replicas
        self._pending: dict[str, PendingRequest] = {}
        self._joins = JoinTable[bytes]()
        self._turn = 0
        self._peers = PeerAddresses()
        self._only_routes: dict[LoadedGraph, _LinkedRoute] = {}
        self._changes = -1

    def __contains__(self, request_id: str) -> bool:
        """Returns whether a request has no reply yet."""
        return request_id in self._pending

    def find(self, request_id: str) -> PendingRequest | None:
        """Returns a request that has no reply yet; None for others."""
        return self._pending.get(request_id)

    def begin(
        self,
        service: str,
        graph: LoadedGraph,
        run: RunStages,
        on_event: Callable[[Event], None],
        keys: Mapping[str, str],
    ) -> PendingRequest:
        """Routes a request and sends it.

        Args:
            service: ``namespace/name``.
            graph: its stages.
            run: the request, with the route ``UNROUTED``.
            on_event: gets what hubs send for it, and at its end what has failed.
            keys: of the request, by component.

        Returns:
            The request, which the caller must :meth:`end`.

        Raises:
            OpenAiError: a component has no replica.
        """
        pending = PendingRequest(service, graph, run, on_event, keys)
        try:
            self._send(pending)
        except NoReplicaError as error:
            raise no_replica(f"{service}, component {error.component}") from None
        self._pending[run.request_id] = pending
        return pending

    def add_credit(self, pending: PendingRequest, size: int) -> None:
        """Lets a stream go on, as its client has read some bytes."""
        pending.unread_bytes -= size
        if (link := pending.stage_links.get(pending.graph.streamed)) is not None:
            link.answer(Credit(pending.request_id, size))

    def end(self, pending: PendingRequest) -> None:
        """Forgets a request; its hubs abort what still runs. May be called more than once."""
        if self._pending.pop(pending.request_id, None) is not None:
            self._joins.close(pending.request_id)
            if self._traces is not None:
                pending.trace = self._traces.begin(pending)
            self._leave(pending)

    def take_dropped(self) -> dict[str, int]:
        """Returns how many values of replies were dropped since the last time, by reason."""
        return self._joins.take_counts()

    # -- for the hubs' frames --------------------------------------------------------------------

    def reply(self, link: HubLink, message: Piece | StageValue | StageFailed) -> Defect:
        """Deals with a frame of a request.

        Frames of requests that have ended are ignored, those of a route that was replaced, and so
        is a value or failure of a stage, or a piece, from another hub than that which the route
        gives the stage to.
        """
        request_id = message.call_id if isinstance(message, Piece) else message.request_id
        pending = self._pending.get(request_id)
        if pending is None or link not in pending.links.values():
            return Defect.NOT_ITS_CALL
        stage = _stage_of(message, pending)
        if stage and pending.stage_links.get(stage) is not link:
            return Defect.NOT_ITS_CALL
        match message:
            case Piece():
                return self._stream(pending, message) if stage else Defect.NOT_ITS_CALL
            case StageFailed():
                return self._reported(pending, message)
            case StageValue():
                return self._take(pending, message)

    def lost(self, link: HubLink) -> None:
        """Routes the requests again that a hub has taken with it."""
        for pending in list(self._pending.values()):
            gone = [r for r in pending.replicas if r.link is link]
            if gone:
                pending.avoided.update(r.candidate.replica_id for r in gone)
                version = pending.run.route.version
                self._failed(pending, StageFailed(pending.request_id, version, "", "", LOST))

    # -- one request -----------------------------------------------------------------------------

    @staticmethod
    def _stream(pending: PendingRequest, piece: Piece) -> Defect:
        # The hub may have sent it before it learned that the request is routed anew, to it again.
        if piece.version not in (0, pending.run.route.version):
            return Defect.NOT_ITS_CALL
        # An engine host sends while it has credit: only its last piece may be beyond it.
        if not pending.run.stream or pending.unread_bytes >= CREDIT_BYTES:
            return Defect.BREACH
        pending.has_streamed = True
        pending.unread_bytes += len(piece.data)
        pending.on_event(piece)
        return Defect.NONE

    def _reported(self, pending: PendingRequest, failed: StageFailed) -> Defect:
        if not _is_valid(failed):
            return Defect.BREACH
        if failed.version == pending.run.route.version:
            self._failed(pending, failed)
        return Defect.NONE

    def _take(self, pending: PendingRequest, message: StageValue) -> Defect:
        version = pending.run.route.version
        if message.version > version or len(message.data) > VALUE_BYTES_MAX:
            return Defect.NOT_ITS_CALL  # for a route that is made later, or too large for any
        if message.stage == REPLY:
            done = self._joins.add(
                pending.request_id, message.version, REPLY, message.source, message.data
            )
            if done is not None:
                pending.is_answered = True
                pending.on_event(done)
        elif message.version == version:
            return self._relay(pending, message)
        return Defect.NONE

    @staticmethod
    def _relay(pending: PendingRequest, message: StageValue) -> Defect:
        """Sends a value on to the hub of the stage that needs it, once."""
        link, key = pending.stage_links.get(message.stage), (message.stage, message.source)
        if link is None or key in pending.relayed:
            return Defect.NOT_ITS_CALL
        pending.relayed.add(key)
        link.answer(message)
        return Defect.NONE

    def _failed(self, pending: PendingRequest, failed: StageFailed) -> None:
        """Routes a request again where that is safe and may help; else reports the failure."""
        retries = failed.outcome in RETRYABLE and pending.run.route.version < TRIES
        if retries and not pending.has_streamed:
            if failed.replica_id:
                pending.avoided.add(failed.replica_id)
            self._leave(pending)
            try:
                self._send(pending)
            except NoReplicaError:
                pending.on_event(failed)
        else:
            pending.on_event(failed)

    def _send(self, pending: PendingRequest) -> None:
        version = pending.run.route.version + 1
        began_s = time.perf_counter()
        linked = self._route(pending, version)
        route, pending.replicas, pending.links, pending.stage_links, pending.release = linked
        self.route_times.observe(time.perf_counter() - began_s)
        pending.run = msgspec.structs.replace(pending.run, route=route, graph=pending.graph.digest)
        pending.relayed.clear()
        self._joins.open(pending.request_id, version, {REPLY: pending.graph.reply_needs})
        for replica in pending.replicas:
            replica.candidate.own += 1
        links = pending.links.values()
        for link in links:
            link.use_graph(pending.graph)
            peers = self._peers.of(link, links) if len(links) > 1 else {}
            link.answer(msgspec.structs.replace(pending.run, peers=peers) if peers else pending.run)

    def _route(self, pending: PendingRequest, version: int) -> _LinkedRoute:
        if self._changes != self._replicas.changes:
            self._changes = self._replicas.changes
            self._only_routes.clear()
        known = self._only_routes.get(pending.graph)
        if known is not None and version == known.route.version and not pending.avoided:
            return known
        found = self._replicas.of(pending.service)
        options = self._options(found)
        route = route_request(pending.graph, options, version, pending.avoided, pending.keys)
        replicas = tuple(found[place.replica_id] for place in route.stages)
        made = _LinkedRoute(
            route,
            replicas,
            {r.link.worker: r.link for r in replicas},
            {p.stage: r.link for p, r in zip(route.stages, replicas, strict=True)},
            ", ".join(dict.fromkeys(r.release for r in replicas)),
        )
        # With one replica of each component, all requests have the same first route.
        if version == 1 and all(len(of_component) == 1 for of_component in options.values()):
            self._only_routes[pending.graph] = made
        return made

    def _leave(self, pending: PendingRequest) -> None:
        """Has the hubs of the present route end the request; at once where it still runs."""
        end = EndRequest(pending.request_id)
        for link in pending.links.values():
            (link.defer if pending.is_answered else link.answer)(end)
        for replica in pending.replicas:
            replica.candidate.own -= 1
        pending.links, pending.stage_links, pending.replicas = {}, {}, ()

    def _options(self, found: Mapping[str, RoutedReplica]) -> dict[str, list[RouteOption]]:
        """Returns the replicas by component; equal ones take turns."""
        self._turn += 1
        options: dict[str, list[RouteOption]] = {}
        for number, (replica_id, replica) in enumerate(found.items()):
            turn = (number + self._turn) % len(found)
            candidate = replica.candidate
            option = RouteOption(
                replica_id, replica.link.worker, candidate.load, turn, candidate.calls_max
            )
            options.setdefault(replica.load.component, []).append(option)
        return options


def _stage_of(message: Piece | StageValue | StageFailed, pending: PendingRequest) -> str:
    """Returns the stage that a frame speaks for; empty for its hub's part of the whole route."""
    match message:
        case Piece():
            return pending.graph.streamed
        case StageValue(source=source):
            return source
        case StageFailed(stage=stage):
            return stage


def _is_valid(failed: StageFailed) -> bool:
    """Returns whether a stage may fail so."""
    if failed.outcome == FAILED:
        return failed.status in _ERRORS
    return failed.outcome in _OUTCOMES
