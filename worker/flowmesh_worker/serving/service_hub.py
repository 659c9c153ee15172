"""What the hub of a worker does: passes calls from routers to engine hosts and answers back.

It reads no body, holds no key and runs no user code. Its process is :mod:`hub`.
"""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import (
    FULL,
    SERVING_VERSION,
    STAGE_QUEUED,
    STAGE_RUNNING,
    UNKNOWN_REPLICA,
    Abort,
    AskStages,
    CallEnded,
    CallRefused,
    CallTimes,
    Credit,
    EndRequest,
    HubHello,
    ReplicaLoad,
    ReplicaLoads,
    RunStages,
    ServiceCall,
    StageProgress,
    StageReport,
    StageValue,
    TokenTargets,
    UseGraph,
)
from flowmesh_core.serving.queue.request_priority import RequestPriority
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_worker.ipc.hub_frames import AdmitReplica, ReplicaUsage, RouterTls
from flowmesh_worker.ipc.passed_values import NO_VALUES, StageBytes
from flowmesh_worker.serving.instance_link import HostCall, InstanceLink, ToCaller
from flowmesh_worker.serving.replica_times import ReplicaTimes
from flowmesh_worker.serving.router_group import UNIX, RouterGroup
from flowmesh_worker.serving.router_link import RouterLink, RouterMessage
from flowmesh_worker.serving.stage_requests import StageRequests

CALL_PRIORITY = 1 << 30
"""Above the priority of every attempt."""
_REPORT_EVERY_S = 0.005
_USAGE_EVERY_S = 0.25
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Replica:
    admitted: AdmitReplica
    instance: InstanceLink
    calls: int = 0
    tokens: int = 0
    is_withdrawn: bool = False
    times: ReplicaTimes = field(default_factory=ReplicaTimes)

    def take_times(self) -> CallTimes:
        """Returns what its calls have taken that have ended since the last time."""
        taken = self.times.sums.take()
        if (of_host := self.instance.take_times(self.admitted.component)) is not None:
            taken.add(of_host)
        return taken

    @property
    def timings(self) -> Mapping[str, StageTiming]:
        """See ``StageReplica``."""
        return self.admitted.timings


@dataclass(slots=True, eq=False)
class _Routed:
    link: RouterLink
    replicas: Sequence[_Replica]
    reply: Callable[[ToCaller], None]

    @property
    def instance(self) -> InstanceLink:
        """Where the call is."""
        return self.replicas[0].instance


class ServiceHub:
    """Connects routers with the engine instances of one worker.

    Attributes:
        generation: see ``StageReplicas``.
    """

    def __init__(self, worker: str, report_usage: Callable[[ReplicaUsage], None]) -> None:
        """Connects to nothing yet.

        Args:
            worker: the worker's name.
            report_usage: called now and then with what the calls of a replica use.
        """
        self._worker = worker
        self._incarnation = uuid.uuid4().hex
        self._report_replica = report_usage
        self._admission = asyncio.Lock()
        self._instances: dict[str, InstanceLink] = {}
        self._replicas: dict[str, _Replica] = {}
        self._routers: dict[str, RouterGroup] = {}
        self._calls: dict[str, _Routed] = {}
        self.generation = 0
        self._stages = StageRequests(worker, self, self._incarnation[:16], self._namespaces)
        self._report_timer: asyncio.TimerHandle | None = None
        self._usage_timer: asyncio.TimerHandle | None = None
        self._used: set[_Replica] = set()

    # -- for the agent ---------------------------------------------------------------------------

    def use_routers(
        self,
        addresses: tuple[str, ...],
        tls: Mapping[str, RouterTls] = MappingProxyType({}),
        peer_port: int = 0,
    ) -> None:
        """Connects to new routers and disconnects from those that are not listed.

        Args:
            addresses: all addresses; one may stand for several routers.
            tls: of ``tls:`` addresses; a new link certificate is sent over the open connections.
            peer_port: where it takes values of hubs of other machines; 0 for nowhere.
        """
        if peer_port and tls:
            self._stages.peers.use_port(peer_port, next(iter(tls.values())))
        for address in self._routers.keys() - set(addresses):
            self._routers.pop(address).close()
        for address in addresses:
            known = self._routers.get(address)
            try:
                if known is not None and known.accepts(tls.get(address)):
                    continue
                if known is not None:
                    known.close()
                group = RouterGroup(address, tls.get(address), self._hello, self)
            except (ProtocolError, OSError) as error:
                _log.warning("%s", error)
                if (unusable := self._routers.pop(address, None)) is not None:
                    unusable.close()
                continue
            if address.startswith(UNIX):
                self._stages.peers.listen(Path(address.removeprefix(UNIX)))
            group.start()
            self._routers[address] = group

    async def admit(self, admitted: AdmitReplica) -> None:
        """Takes calls of a replica once its host is connected; again to change limits and salts."""
        async with self._admission:  # replicas of one instance share a connection
            instance = self._instances.get(admitted.socket)
            if instance is None or instance.is_lost:
                instance = InstanceLink(self._report_soon)
                if not await instance.connect(admitted.socket):
                    _log.warning("%s: its host does not answer", admitted.replica_id)
                    return
                self._instances[admitted.socket] = instance
        if not instance.paths:
            _log.warning("%s: its engine answers no calls", admitted.replica_id)
        instance.raise_calls_max(admitted.calls_max, admitted.halvings)
        known = self._replicas.get(admitted.replica_id)
        if known is not None and known.instance is instance:
            self.generation += known.timings != admitted.timings
            known.admitted, known.is_withdrawn = admitted, False
        else:
            self._replicas[admitted.replica_id] = _Replica(admitted, instance)
            self.generation += 1
        self._use_targets(instance)
        self._report_soon()

    def withdraw(self, replica_id: str) -> None:
        """Takes no further calls of a replica; those that it has go on."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.is_withdrawn = True
            self._use_targets(replica.instance)
            self._remove_if_done(replica)
            self._report_soon()

    def _use_targets(self, instance: InstanceLink) -> None:
        """Has an instance keep the strictest token targets of its replicas."""
        found = [
            r.admitted
            for r in self._replicas.values()
            if r.instance is instance and not r.is_withdrawn
        ]
        ttft_s = min((a.ttft_s for a in found if a.ttft_s), default=0.0)
        tpot_s = min((a.tpot_s for a in found if a.tpot_s), default=0.0)
        instance.use_targets(TokenTargets(ttft_s, tpot_s))

    def _namespaces(self) -> set[str]:
        return {r.admitted.service.partition("/")[0] for r in self._replicas.values()}

    def close(self) -> None:
        """Disconnects from all routers and hosts."""
        for group in self._routers.values():
            group.close()
        for instance in self._instances.values():
            instance.close()
        self._stages.close()

    # -- as a CallReceiver -----------------------------------------------------------------------

    def receive(self, link: RouterLink, message: RouterMessage) -> None:
        """See ``CallReceiver.receive``."""
        match message:
            case RunStages():
                self._stages.begin(link, message)
            case EndRequest(request_id=request_id):
                self._stages.end(link, request_id)
            case StageValue():
                self._stages.add_value(link, message)
            case ServiceCall():
                self._begin(link, message)
            case Credit():
                self._add_credit(link, message)
            case Abort(call_id=call_id):
                if (routed := self._calls.get(call_id)) is not None and routed.link is link:
                    self._abort(call_id, routed)
            case UseGraph(graph=graph):
                self._stages.use_graph(link, graph)
            case AskStages(number=number, request_id=request_id):
                link.send(StageReport(number, self._progress(link, request_id)))

    def forget(self, link: RouterLink) -> None:
        """See ``CallReceiver.forget``."""
        self._stages.forget(link)
        for call_id, routed in list(self._calls.items()):
            if routed.link is link:
                self._abort(call_id, routed)

    # -- as StageReplicas ------------------------------------------------------------------------

    def replica(self, replica_id: str) -> _Replica | None:
        """See ``StageReplicas.replica``."""
        return self._replicas.get(replica_id)

    def start(
        self,
        link: RouterLink,
        replica_ids: Sequence[str],
        tenant: str,
        call: HostCall,
        reply: Callable[[ToCaller], None],
        passed: Mapping[str, StageBytes] = NO_VALUES,
    ) -> str:
        """See ``StageReplicas.start``."""
        replicas: list[_Replica] = []
        for replica_id in replica_ids:
            replica = self._replicas.get(replica_id)
            if replica is None or replica.is_withdrawn or replica.instance.is_lost:
                return UNKNOWN_REPLICA
            if tenant not in replica.admitted.salts:  # the service does not admit this namespace
                return UNKNOWN_REPLICA
            replicas.append(replica)
        if link.is_congested:
            return FULL
        priority = RequestPriority.NORMAL
        if isinstance(call, ServiceCall):
            priority = RequestPriority.nearest(call.priority)
            salt = replicas[0].admitted.salts[tenant]
            call = msgspec.structs.replace(
                call, replica_id="", cache_salt=salt, priority=CALL_PRIORITY
            )
        routed = self._calls[call.call_id] = _Routed(link, replicas, reply)
        for replica in replicas:
            replica.calls += 1
        self._used_by(replicas)
        times = replicas[0].times if isinstance(call, ServiceCall) else None
        service = replicas[0].admitted.service
        routed.instance.add(call, self._reply, passed, times, service=service, priority=priority)
        return ""

    def abort(self, call_id: str) -> None:
        """See ``StageReplicas.abort``."""
        if (routed := self._calls.get(call_id)) is not None:
            self._abort(call_id, routed)

    def _begin(self, link: RouterLink, call: ServiceCall) -> None:
        if call.call_id in self._calls:
            return
        if reason := self.start(link, (call.replica_id,), call.tenant, call, link.send):
            link.send(CallRefused(call.call_id, reason))

    def _progress(self, link: RouterLink, request_id: str) -> tuple[StageProgress, ...]:
        """Returns how far a router's request, or its call, is."""
        routed = self._calls.get(request_id)
        if routed is None or routed.link is not link:
            return self._stages.progress(link, request_id)
        state = STAGE_RUNNING if routed.instance.is_running(request_id) else STAGE_QUEUED
        return (StageProgress("", state),)

    def _add_credit(self, link: RouterLink, credit: Credit) -> None:
        call_id = self._stages.streaming_call(credit.call_id) or credit.call_id
        routed = self._calls.get(call_id)
        if routed is not None and routed.link is link:
            routed.instance.add_credit(Credit(call_id, credit.size))

    def _reply(self, message: ToCaller) -> None:
        routed = self._calls[message.call_id]
        if isinstance(message, CallEnded | CallRefused):
            self._end(message.call_id, routed)
        if isinstance(message, CallEnded):
            routed.replicas[0].tokens += message.tokens_in + message.tokens_out
        routed.reply(message)

    def _abort(self, call_id: str, routed: _Routed) -> None:
        self._end(call_id, routed)
        routed.instance.abort(call_id)

    def _end(self, call_id: str, routed: _Routed) -> None:
        del self._calls[call_id]
        self._used_by(routed.replicas)
        for replica in routed.replicas:
            replica.calls -= 1
            if replica.is_withdrawn:
                self._remove_if_done(replica)

    def _remove_if_done(self, replica: _Replica) -> None:
        if replica.is_withdrawn and not replica.calls:
            self._replicas.pop(replica.admitted.replica_id, None)
            self.generation += 1

    # -- reports ---------------------------------------------------------------------------------

    def _hello(self) -> HubHello:
        return HubHello(
            SERVING_VERSION,
            self._worker,
            self._incarnation,
            self._loads(),
            peer=self._stages.peers.name,
            reports_stages=True,
        )

    def _loads(self) -> tuple[ReplicaLoad, ...]:
        return tuple(
            _load(replica)
            for replica in self._replicas.values()
            if not replica.is_withdrawn and not replica.instance.is_lost
        )

    def _report_soon(self) -> None:
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(_REPORT_EVERY_S, self._report)

    def _report(self) -> None:
        self._report_timer = None
        loads, dropped, times = self._loads(), self._stages.take_dropped(), self._take_times()
        for link in itertools.chain.from_iterable(g.links for g in self._routers.values()):
            link.defer(ReplicaLoads(loads, self._stages.take_passed_bytes(link), dropped, times))
            dropped, times = {}, {}

    def _take_times(self) -> dict[str, CallTimes]:
        taken = ((i, r.take_times()) for i, r in self._replicas.items() if not r.is_withdrawn)
        return {replica_id: times for replica_id, times in taken if times.calls}

    def _used_by(self, replicas: Sequence[_Replica]) -> None:
        self._used.update(replicas)
        if self._usage_timer is None:
            loop = asyncio.get_running_loop()
            self._usage_timer = loop.call_later(_USAGE_EVERY_S, self._report_usage)

    def _report_usage(self) -> None:
        self._usage_timer = None
        for replica in self._used:
            self._report_replica(
                ReplicaUsage(
                    replica.admitted.replica_id,
                    replica.calls,
                    replica.tokens,
                    replica.times.busy_s,
                )
            )
        self._used.clear()


def _load(replica: _Replica) -> ReplicaLoad:
    admitted, instance = replica.admitted, replica.instance
    load = ReplicaLoad(
        admitted.replica_id,
        admitted.service,
        instance.paths,
        instance.calls_max,
        instance.running,
        instance.queued,
        admitted.component,
        adapters=instance.adapters,
    )
    profile = instance.profiles.get(admitted.component)
    if profile is not None:
        return msgspec.structs.replace(
            load,
            sizes=profile.sizes,
            seconds=profile.seconds,
            cap=profile.cap,
            call_lengths=profile.call_lengths,
        )
    measured = replica.times.measured.profile
    if measured is None:
        return load
    return msgspec.structs.replace(
        load, sizes=measured.sizes, seconds=measured.seconds, cap=instance.calls_max
    )
