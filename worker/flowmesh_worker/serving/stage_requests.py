"""The requests to services with stages, at one hub: begins each stage once its join is complete.

A request comes with its route. Values go to stages of this worker directly, to those of others
through their hub where it is a peer, else through the router, and those of the reply to the router.
"""

import asyncio
import contextlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from flowmesh_core.errors import FlowMeshError, ProtocolError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    FAILED,
    FULL,
    GRAPHS_MAX,
    LOST,
    OK,
    PACKED_ARRAYS,
    STAGE_ENDED,
    STAGE_QUEUED,
    STAGE_RUNNING,
    UNKNOWN_REPLICA,
    CallEnded,
    CallRefused,
    PeerRefused,
    PeerValue,
    Piece,
    RunStages,
    StageFailed,
    StageProgress,
    StageValue,
)
from flowmesh_core.stages.joins import JoinTable, MatchedSet
from flowmesh_core.stages.service_graph import LoadedGraph, ServiceGraph
from flowmesh_core.stages.values import REQUEST
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.serving.early_values import EarlyValue, EarlyValues
from flowmesh_worker.serving.instance_link import ToCaller
from flowmesh_worker.serving.passed_bytes import PassedBytes
from flowmesh_worker.serving.peer_links import PeerLinks
from flowmesh_worker.serving.peer_receiver import Peer
from flowmesh_worker.serving.router_link import RouterLink
from flowmesh_worker.serving.stage_calls import StageCall, stage_call, stage_value
from flowmesh_worker.serving.stage_chain import StageChain
from flowmesh_worker.serving.stage_plans import RoutePlan, StagePlan, StagePlans
from flowmesh_worker.serving.stage_replicas import StageReplicas
from flowmesh_worker.serving.stage_values import StageData
from flowmesh_worker.serving.staged_request import StagedRequest, StageTimes
from flowmesh_worker.serving.value_sender import ValueSender, error_body

VALUES_BYTES_MAX = 256 << 20
"""Values of all requests that a hub holds at most; beyond, it refuses requests. Those of one tenant
are three quarters of it at most, so that others' requests run, too."""
_PEER_LOST_S = 1.0
"""A router learns of a lost hub before this time, and routes its requests again by itself."""
_BAD_REQUEST, _SERVER_ERROR = 400, 500


class StageRequests:
    """All requests of one hub.

    Attributes:
        peers: links to hubs of other workers.
    """

    def __init__(
        self,
        worker: str,
        replicas: StageReplicas,
        peer: str,
        namespaces: Callable[[], AbstractSet[str]],
    ) -> None:
        """Has no request yet.

        Args:
            worker: the worker's name.
            replicas: of the hub.
            peer: name of the socket for values of other hubs.
            namespaces: returns those of the replicas.
        """
        self._worker = worker
        self._replicas = replicas
        self._graphs: dict[RouterLink, dict[str, LoadedGraph]] = {}
        self._requests: dict[str, StagedRequest] = {}
        self._joins = JoinTable[StageData]()
        self._plans = StagePlans(worker, replicas)
        self._passed = PassedBytes()
        self._early = EarlyValues()
        self.peers = PeerLinks(worker, peer, self, namespaces)
        self._sender = ValueSender(self.peers, self._passed, self._send_failed)
        self._value_bytes = 0
        self._tenant_bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        """Returns how many requests run here."""
        return len(self._requests)

    def close(self) -> None:
        """Disconnects from other hubs, and drops the values that wait for a request."""
        self.peers.close()
        self._early.close()

    def use_graph(self, link: RouterLink, graph: ServiceGraph) -> None:
        """Loads a graph of a router, and forgets its oldest one where it has many."""
        loaded = LoadedGraph(graph)
        graphs = self._graphs.setdefault(link, {})
        graphs[loaded.digest] = loaded
        if len(graphs) > GRAPHS_MAX:
            del graphs[next(iter(graphs))]

    def begin(self, link: RouterLink, run: RunStages) -> None:
        """Begins a request, or replaces its route by one of a higher version."""
        known = self._requests.get(run.request_id)
        if known is not None:
            if known.version >= run.route.version or known.link is not link:
                return
            self._abort(known)
        graph = self._graphs.get(link, {}).get(run.graph)
        plan = None if graph is None else self._plans.of(graph, run.route)
        is_full = not self._fits(run.tenant, len(run.request))
        if graph is None or plan is None or not plan.stages or is_full:
            self._refuse(link, run, UNKNOWN_REPLICA if graph is None else FULL)
            return
        now_s = asyncio.get_running_loop().time()
        request = StagedRequest(
            link,
            run,
            graph,
            plan,
            now_s + run.budget_ms / 1000,
            now_s + run.slo_ms / 1000 if run.slo_ms else 0.0,
        )
        self._requests[run.request_id] = request
        ready = self._joins.open(run.request_id, request.version, plan.needs)
        data = StageData(run.request)
        self._hold(request, len(run.request))
        for done in ready:
            self._start(request, done)
        for stage in plan.of_request:
            self._add(request, stage, REQUEST, data)
        for early in self._early.take(run.request_id):
            with contextlib.suppress(ProtocolError):
                self.add_peer_value(early.peer, early.value, early.data, early.refuse)

    def _refuse(self, link: RouterLink, run: RunStages, reason: str) -> None:
        here = (place for place in run.route.stages if place.worker == self._worker)
        replica_id = next((place.replica_id for place in here), "")
        version = run.route.version
        link.send(StageFailed(run.request_id, version, "", replica_id, reason))

    def add_value(self, link: RouterLink, message: StageValue) -> None:
        """Adds a value that another hub has made."""
        request = self._requests.get(message.request_id)
        if request is None or request.link is not link:
            return
        self._add_passed(request, message, message.data)

    def end(self, link: RouterLink, request_id: str) -> None:
        """Aborts what runs of a router's request and frees its values."""
        request = self._requests.get(request_id)
        if request is not None and request.link is link:
            del self._requests[request_id]
            self._abort(request)
            self._joins.close(request_id)

    def forget(self, link: RouterLink) -> None:
        """Ends all requests of a router, and forgets its graphs."""
        self._graphs.pop(link, None)
        for request_id, request in list(self._requests.items()):
            if request.link is link:
                self.end(link, request_id)
        self._passed.take(link)

    def streaming_call(self, request_id: str) -> str:
        """Returns the call that streams a request's answer; empty where none does."""
        request = self._requests.get(request_id)
        return "" if request is None else request.calls.get(request.graph.streamed, "")

    def progress(self, link: RouterLink, request_id: str) -> tuple[StageProgress, ...]:
        """Returns the stages of a router's request that have begun here."""
        request = self._requests.get(request_id)
        if request is None or request.link is not link:
            return ()
        now_s = asyncio.get_running_loop().time()
        return tuple(
            StageProgress(
                name, _state(request, name), now_s - one.arrived_s, one.queue_s, one.compute_s
            )
            for name, one in request.times.items()
        )

    def take_passed_bytes(self, link: RouterLink) -> dict[str, int]:
        """Returns the bytes that were passed on by tier since the last time."""
        return self._passed.take(link)

    def take_dropped(self) -> dict[str, int]:
        """Returns how many values joins have dropped since the last time, by reason."""
        return {why: count for why, count in self._joins.take_counts().items() if count}

    # -- as a PeerReceiver -----------------------------------------------------------------------

    def add_peer_value(
        self, peer: Peer, value: PeerValue, data: StageBytes, refuse: Callable[[], None]
    ) -> None:
        """See ``PeerReceiver.add_peer_value``."""
        request = self._requests.get(value.request_id)
        if request is None or request.version < value.version:
            self._early.add(EarlyValue(peer, value, data, refuse))
            return
        if request.version > value.version:
            return  # its route was replaced
        address = request.run.peers.get(peer.worker)
        place, source = (request.plan.places.get(name) for name in (value.stage, value.source))
        if address is None or not hmac.compare_digest(address.key.encode(), peer.key.encode()):
            raise ProtocolError(f"the hub of {peer.worker} is not a peer for the request")
        if source is None or source.worker != peer.worker:
            raise ProtocolError(f"the hub of {peer.worker} sends a value of another's stage")
        if place is None or place.worker != self._worker:
            raise ProtocolError(f"the hub of {peer.worker} sends a value for another hub")
        self._add_passed(request, value, data)

    def peer_refused(self, worker: str, refused: PeerRefused) -> None:
        """See ``PeerReceiver.peer_refused``."""
        request = self._requests.get(refused.request_id)
        if request is None or request.version != refused.version:
            return
        if worker in request.peers:
            self._fail(request, "", LOST)

    def peer_lost(self, worker: str) -> None:
        """See ``PeerReceiver.peer_lost``."""
        for request in self._requests.values():
            if worker in request.peers:
                refused = PeerRefused(request.run.request_id, request.version)
                asyncio.get_running_loop().call_later(
                    _PEER_LOST_S, self.peer_refused, worker, refused
                )

    # -- one request -----------------------------------------------------------------------------

    def _add(self, request: StagedRequest, stage: str, source: str, data: StageData) -> None:
        done = self._joins.add(request.run.request_id, request.version, stage, source, data)
        if done is not None:
            self._start(request, done)

    def _add_passed(
        self, request: StagedRequest, value: StageValue | PeerValue, passed: StageBytes
    ) -> None:
        """Adds a value that another hub has made."""
        if isinstance(passed, bytes) and not passed.startswith(PACKED_ARRAYS):
            data = StageData(passed)
        else:
            data = StageData(b"", packed=passed)
        if not self._hold(request, data.size):
            self._fail(request, value.stage, FULL)
            return
        done = self._joins.add(value.request_id, value.version, value.stage, value.source, data)
        if done is not None:
            self._start(request, done)

    def _plan(self, request: StagedRequest) -> RoutePlan:
        """Returns the plan of a request's route, with the replicas that the hub has now."""
        if request.plan.generation != self._replicas.generation:
            request.plan = self._plans.of(request.graph, request.run.route)
        return request.plan

    def _start(self, request: StagedRequest, done: MatchedSet[StageData]) -> None:
        """Calls a stage, and those after it that its host can run without the hub."""
        plan, now_s = self._plan(request), asyncio.get_running_loop().time()
        stages: list[StagePlan] = []
        calls: list[StageCall] = []
        following: MatchedSet[StageData] | None = done
        while following is not None:
            stage = plan.stages[following.stage]
            try:
                call = stage_call(request, stage, following.values, now_s)
            except (FlowMeshError, msgspec.DecodeError) as error:
                self._fail(request, stage.name, FAILED, _BAD_REQUEST, error_body(error))
                return
            except RecursionError:  # it was decoded nearer to the limit of nesting than it is here
                why = OpenAiError("A value is nested too deeply.", code="invalid_value")
                self._fail(request, stage.name, FAILED, _BAD_REQUEST, error_body(why))
                return
            stages.append(stage)
            calls.append(call)
            self._passed.count_inputs(request.link, *call)
            following = self._following(request, stage, call) if stage.following else None
        chain = StageChain(stages, [call.call for call in calls])
        self._run(request, chain, calls[0].passed)

    def _following(
        self, request: StagedRequest, stage: StagePlan, call: StageCall
    ) -> MatchedSet[StageData] | None:
        """Returns what the next stage needs, where it only lacks the value of this one."""
        values = self._joins.begin_early(
            request.run.request_id, request.version, stage.following, stage.name
        )
        if values is None:
            return None
        values[stage.name] = StageData(b"", call.call.call_id, stage.instance)
        return MatchedSet(stage.following, values)

    def _run(
        self, request: StagedRequest, chain: StageChain, passed: Mapping[str, StageBytes]
    ) -> None:
        replica_ids = [stage.replica_id for stage in chain.stages]
        instance = chain.stages[0].instance
        if instance is not None and chain.keys:
            request.stored.setdefault(instance, []).extend(chain.keys)
        first, call = chain.stages[0].name, chain.call
        request.calls[first] = call.call_id
        now_s = asyncio.get_running_loop().time()
        for stage in chain.stages:
            request.times[stage.name] = StageTimes(call.call_id, now_s)

        def reply(message: ToCaller) -> None:
            self._replied(request, chain, message)

        tenant = request.run.tenant
        reason = self._replicas.start(request.link, replica_ids, tenant, call, reply, passed)
        if reason:
            request.calls.pop(first, None)
            self._fail(request, first, reason)

    def _replied(self, request: StagedRequest, chain: StageChain, message: ToCaller) -> None:
        if isinstance(message, Piece):
            piece = Piece(request.run.request_id, message.data, request.version)
            request.link.send(piece)
            return
        request.calls.pop(chain.stages[0].name, None)
        self._count_times(request, chain, message)
        if isinstance(message, CallRefused):
            self._fail(request, chain.stages[0].name, message.reason)
        elif message.outcome == OK:
            self._pass_on(request, chain, message)
        else:
            stage = chain.ended_at(message)
            self._fail(request, stage, message.outcome, message.status, message.body)

    @staticmethod
    def _count_times(
        request: StagedRequest, chain: StageChain, message: CallEnded | CallRefused
    ) -> None:
        """Records what the stages of a chain took: one after the other, as the host says."""
        now_s = asyncio.get_running_loop().time()
        took = message.times if isinstance(message, CallEnded) else ()
        arrived_s = request.times[chain.stages[0].name].arrived_s
        for number, stage in enumerate(chain.stages):
            times = request.times[stage.name]
            times.ended_s = now_s
            if number < len(took):
                times.queue_s, times.compute_s = took[number]
                times.arrived_s = arrived_s
                arrived_s += times.queue_s + times.compute_s
            elif took:
                del request.times[stage.name]  # the chain failed before it

    def _pass_on(self, request: StagedRequest, chain: StageChain, ended: CallEnded) -> None:
        """Sends the value of a chain's last stage to all that need it."""
        stage = self._plan(request).stages[chain.stages[-1].name]
        data = stage_value(chain.calls[-1], ended, stage.instance)
        if not self._hold(request, data.size):
            self._fail(request, stage.name, FULL)
            return
        for consumer, is_here in stage.consumers:
            if is_here:
                self._add(request, consumer, stage.name, data)
            else:
                self._sender.send(request, consumer, stage.name, data)

    def _send_failed(self, request: StagedRequest, stage: str, error: OpenAiError) -> None:
        if self._requests.get(request.run.request_id) is request:
            self._fail(request, stage, FAILED, _SERVER_ERROR, error_body(error))

    def _fail(
        self, request: StagedRequest, stage: str, outcome: str, status: int = 500, body: bytes = b""
    ) -> None:
        place = request.plan.places.get(stage)
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
        self._count(request, -request.value_bytes)

    def _hold(self, request: StagedRequest, size: int) -> bool:
        """Counts the bytes of a value; returns False where the hub would hold too many."""
        if not self._fits(request.run.tenant, size):
            return False
        self._count(request, size)
        return True

    def _fits(self, tenant: str, size: int) -> bool:
        """Returns whether the hub can hold a value of a tenant, too."""
        if self._value_bytes + self._early.size + size > VALUES_BYTES_MAX:
            return False
        return 4 * (self._tenant_bytes[tenant] + size) <= 3 * VALUES_BYTES_MAX

    def _count(self, request: StagedRequest, size: int) -> None:
        tenant = request.run.tenant
        request.value_bytes += size
        self._value_bytes += size
        self._tenant_bytes[tenant] += size
        if not self._tenant_bytes[tenant]:
            del self._tenant_bytes[tenant]


def _state(request: StagedRequest, stage: str) -> str:
    times, instance = request.times[stage], request.plan.stages[stage].instance
    if times.ended_s:
        return STAGE_ENDED
    is_running = instance is not None and instance.is_running(times.call_id)
    return STAGE_RUNNING if is_running else STAGE_QUEUED
