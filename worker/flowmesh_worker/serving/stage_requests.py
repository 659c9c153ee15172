"""The requests to services with stages, at one hub: begins each stage once its join is complete.

A request comes with its route. Values go to stages of this worker directly, to those of others
through the router, and those of the reply to the router itself.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    FAILED,
    FULL,
    UNKNOWN_REPLICA,
    VALUE_BYTES_MAX,
    CallEnded,
    CallRefused,
    ComponentCall,
    Piece,
    RunStages,
    StageFailed,
    StageValue,
)
from flowmesh_core.stages.joins import JoinTable, MatchedSet
from flowmesh_core.stages.service_graph import REPLY, LoadedGraph, ServiceGraph
from flowmesh_core.stages.values import REQUEST
from flowmesh_worker.serving.instance_link import HostCall, InstanceLink, ToCaller
from flowmesh_worker.serving.router_link import RouterLink
from flowmesh_worker.serving.stage_calls import StageCalls, stage_value
from flowmesh_worker.serving.stage_values import StageData

VALUES_BYTES_MAX = 256 << 20
"""Values of all requests that a hub holds at most; beyond, it refuses requests."""
REFERENCE, INLINE, RELAY = "reference", "inline", "relay"
_BAD_REQUEST, _SERVER_ERROR = 400, 500


class StageReplicas(Protocol):
    """The part of the hub that stages use."""

    def instance_of(self, replica_id: str) -> InstanceLink | None:
        """Returns the engine instance of a replica."""
        ...

    def start(
        self,
        link: RouterLink,
        replica_id: str,
        tenant: str,
        call: HostCall,
        reply: Callable[[ToCaller], None],
    ) -> str:
        """Begins a call; returns why it is refused, else nothing."""
        ...

    def abort(self, call_id: str) -> None:
        """Drops a call; its end is not reported."""
        ...


@dataclass(slots=True, eq=False)
class StagedRequest:
    """A request that runs here.

    Attributes:
        until_s: its timeout, and ``due_s`` when its reply is late (0 for no target), by the loop's
            clock.
        calls: call id by stage that runs.
        stored: keys of values, by the host that keeps them or may do so: a call that is aborted may
            have been computed.
        value_bytes: of its values.
    """

    link: RouterLink
    run: RunStages
    graph: LoadedGraph
    until_s: float
    due_s: float
    calls: dict[str, str] = field(default_factory=dict)
    stored: dict[InstanceLink, list[str]] = field(default_factory=dict)
    value_bytes: int = 0

    @property
    def version(self) -> int:
        """The version of its route."""
        return self.run.route.version


class StageRequests:
    """All requests of one hub."""

    def __init__(self, worker: str, replicas: StageReplicas) -> None:
        """Has no request yet.

        Args:
            worker: the worker's name.
            replicas: of the hub.
        """
        self._worker = worker
        self._replicas = replicas
        self._graphs: dict[str, LoadedGraph] = {}
        self._requests: dict[str, StagedRequest] = {}
        self._joins = JoinTable[StageData]()
        self._calls = StageCalls(replicas.instance_of)
        self._passed: dict[RouterLink, Counter[str]] = {}
        self._value_bytes = 0

    def __len__(self) -> int:
        """Returns how many requests run here."""
        return len(self._requests)

    def use_graph(self, graph: ServiceGraph) -> None:
        """Loads a graph."""
        loaded = LoadedGraph(graph)
        self._graphs[loaded.digest] = loaded

    def begin(self, link: RouterLink, run: RunStages) -> None:
        """Begins a request, or replaces its route by one of a higher version."""
        known = self._requests.get(run.request_id)
        if known is not None:
            if known.version >= run.route.version or known.link is not link:
                return
            self._abort(known)
        here = [place for place in run.route.stages if place.worker == self._worker]
        graph = self._graphs.get(run.graph)
        if graph is None or not here or self._value_bytes > VALUES_BYTES_MAX:
            reason = FULL if graph is not None else UNKNOWN_REPLICA
            replica_id = here[0].replica_id if here else ""
            link.send(StageFailed(run.request_id, run.route.version, "", replica_id, reason))
            return
        now_s = asyncio.get_running_loop().time()
        request = StagedRequest(
            link,
            run,
            graph,
            now_s + run.budget_ms / 1000,
            now_s + run.slo_ms / 1000 if run.slo_ms else 0.0,
        )
        self._requests[run.request_id] = request
        needs = {place.stage: graph.stages[place.stage].needs for place in here}
        ready = self._joins.open(run.request_id, request.version, needs)
        data = StageData(run.request)
        self._hold(request, len(run.request))
        for done in ready:
            self._start(request, done)
        for place in here:
            if REQUEST in needs[place.stage]:
                self._add(request, place.stage, REQUEST, data)

    def add_value(self, link: RouterLink, message: StageValue) -> None:
        """Adds a value that another hub has made."""
        request = self._requests.get(message.request_id)
        if request is None or request.link is not link:
            return
        data = StageData(message.data)
        done = self._joins.add(
            message.request_id, message.version, message.stage, message.source, data
        )
        self._hold(request, len(message.data))
        if done is not None:
            self._start(request, done)

    def end(self, link: RouterLink, request_id: str) -> None:
        """Aborts what runs of a router's request and frees its values."""
        request = self._requests.get(request_id)
        if request is not None and request.link is link:
            del self._requests[request_id]
            self._abort(request)
            self._joins.close(request_id)

    def forget(self, link: RouterLink) -> None:
        """Ends all requests of a router."""
        for request_id, request in list(self._requests.items()):
            if request.link is link:
                self.end(link, request_id)
        self._passed.pop(link, None)

    def streaming_call(self, request_id: str) -> str:
        """Returns the call that streams a request's answer; empty where none does."""
        request = self._requests.get(request_id)
        return "" if request is None else request.calls.get(request.graph.streamed, "")

    def take_passed_bytes(self, link: RouterLink) -> dict[str, int]:
        """Returns the bytes that were passed on by tier since the last time."""
        return dict(self._passed.pop(link, {}))

    def take_dropped(self) -> dict[str, int]:
        """Returns how many values joins have dropped since the last time, by reason."""
        return {why: count for why, count in self._joins.take_counts().items() if count}

    # -- one request -----------------------------------------------------------------------------

    def _add(self, request: StagedRequest, stage: str, source: str, data: StageData) -> None:
        done = self._joins.add(request.run.request_id, request.version, stage, source, data)
        if done is not None:
            self._start(request, done)

    def _start(self, request: StagedRequest, done: MatchedSet[StageData]) -> None:
        place = request.run.route.place(done.stage)
        assert place is not None, "only stages of the route have joins"
        try:
            call, references = self._calls.call(request, done, place.replica_id)
        except (FlowMeshError, msgspec.DecodeError) as error:
            self._fail(request, done.stage, FAILED, _BAD_REQUEST, error_body(error))
            return
        self._count(request, REFERENCE, references)
        self._count(request, INLINE, len(call.body))
        request.calls[done.stage] = call.call_id
        instance = self._replicas.instance_of(place.replica_id)
        if isinstance(call, ComponentCall) and call.store_as and instance is not None:
            request.stored.setdefault(instance, []).append(call.store_as)

        def reply(message: ToCaller) -> None:
            self._replied(request, done.stage, call, message)

        reason = self._replicas.start(
            request.link, place.replica_id, request.run.tenant, call, reply
        )
        if reason:
            request.calls.pop(done.stage, None)
            self._fail(request, done.stage, reason)

    def _replied(
        self, request: StagedRequest, stage: str, call: HostCall, message: ToCaller
    ) -> None:
        match message:
            case Piece(data=data):
                request.link.send(Piece(request.run.request_id, data))
            case CallRefused(reason=reason):
                request.calls.pop(stage, None)
                self._fail(request, stage, reason)
            case CallEnded(outcome="ok"):
                request.calls.pop(stage, None)
                self._pass_on(request, stage, call, message)
            case CallEnded(outcome=outcome, status=status, body=body):
                request.calls.pop(stage, None)
                self._fail(request, stage, outcome, status, body)

    def _pass_on(
        self, request: StagedRequest, stage: str, call: HostCall, ended: CallEnded
    ) -> None:
        """Sends the value of a stage to all that need it."""
        run = request.run
        instance = self._replicas.instance_of(run.route.place(stage).replica_id)  # type: ignore[union-attr]
        data = stage_value(call, ended, instance)
        self._hold(request, len(data.body))
        for consumer in request.graph.consumers[stage]:
            place = run.route.place(consumer)
            if place is not None and place.worker == self._worker:
                self._add(request, consumer, stage, data)
            elif len(data.body) > VALUE_BYTES_MAX:
                text = f"the value of stage {stage} has {len(data.body)} bytes"
                why = OpenAiError(f"{text}, of at most {VALUE_BYTES_MAX}", code="value_too_large")
                self._fail(request, stage, FAILED, _SERVER_ERROR, error_body(why))
                return
            else:
                if consumer != REPLY:
                    self._count(request, RELAY, len(data.body))
                value = StageValue(run.request_id, request.version, consumer, stage, data.body)
                request.link.send(value)

    def _fail(
        self, request: StagedRequest, stage: str, outcome: str, status: int = 500, body: bytes = b""
    ) -> None:
        place = request.run.route.place(stage)
        replica_id = "" if place is None else place.replica_id
        request.link.send(
            StageFailed(
                request.run.request_id, request.version, stage, replica_id, outcome, status, body
            )
        )

    def _abort(self, request: StagedRequest) -> None:
        for call_id in list(request.calls.values()):
            self._replicas.abort(call_id)
        request.calls.clear()
        for instance, keys in request.stored.items():
            instance.forget(tuple(keys))
        request.stored.clear()
        self._value_bytes -= request.value_bytes
        request.value_bytes = 0

    def _hold(self, request: StagedRequest, size: int) -> None:
        request.value_bytes += size
        self._value_bytes += size

    def _count(self, request: StagedRequest, tier: str, amount: int) -> None:
        if amount:
            self._passed.setdefault(request.link, Counter())[tier] += amount


def error_body(error: Exception) -> bytes:
    """Returns an error object in OpenAI's shape."""
    if not isinstance(error, OpenAiError):
        error = OpenAiError(str(error), code="invalid_value")
    return msgspec.json.encode(error.body())
