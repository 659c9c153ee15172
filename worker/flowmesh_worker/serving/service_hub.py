"""What the hub of a worker does: passes calls from routers to engine hosts and answers back.

It reads no body, holds no key and runs no user code. Its process is :mod:`hub`.
"""

import asyncio
import logging
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import (
    FULL,
    SERVING_VERSION,
    UNKNOWN_REPLICA,
    Abort,
    CallEnded,
    CallRefused,
    Credit,
    HubHello,
    ReplicaLoad,
    ReplicaLoads,
    ServiceCall,
)
from flowmesh_worker.ipc.hub_frames import AdmitReplica, ReplicaUsage, RouterTls
from flowmesh_worker.serving.instance_link import InstanceLink, ToCaller
from flowmesh_worker.serving.router_group import RouterGroup
from flowmesh_worker.serving.router_link import RouterLink

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


@dataclass(frozen=True, slots=True)
class _Routed:
    link: RouterLink
    replica: _Replica


class ServiceHub:
    """Connects routers with the engine instances of one worker."""

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
        self._report_timer: asyncio.TimerHandle | None = None
        self._usage_timer: asyncio.TimerHandle | None = None
        self._used: set[_Replica] = set()

    # -- for the agent ---------------------------------------------------------------------------

    def use_routers(
        self, addresses: tuple[str, ...], tls: Mapping[str, RouterTls] = MappingProxyType({})
    ) -> None:
        """Connects to new routers and disconnects from those that are not listed.

        Args:
            addresses: all addresses; one may stand for several routers.
            tls: of ``tls:`` addresses; a new link certificate is sent over the open connections.
        """
        for address in self._routers.keys() - set(addresses):
            self._routers.pop(address).close()
        for address in addresses:
            known = self._routers.get(address)
            if known is not None and known.accepts(tls.get(address)):
                continue
            if known is not None:
                known.close()
            try:
                group = RouterGroup(address, tls.get(address), self._hello, self)
            except (ProtocolError, ssl.SSLError) as error:
                _log.warning("%s", error)
                self._routers.pop(address, None)
                continue
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
            known.admitted, known.is_withdrawn = admitted, False
        else:
            self._replicas[admitted.replica_id] = _Replica(admitted, instance)
        self._report_soon()

    def withdraw(self, replica_id: str) -> None:
        """Takes no further calls of a replica; those that it has go on."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.is_withdrawn = True
            self._remove_if_done(replica)
            self._report_soon()

    def close(self) -> None:
        """Disconnects from all routers and hosts."""
        for group in self._routers.values():
            group.close()
        for instance in self._instances.values():
            instance.close()

    # -- as a CallReceiver -----------------------------------------------------------------------

    def receive(self, link: RouterLink, message: ServiceCall | Credit | Abort) -> None:
        """See ``CallReceiver.receive``."""
        if isinstance(message, ServiceCall):
            self._begin(link, message)
            return
        routed = self._calls.get(message.call_id)
        if routed is None or routed.link is not link:
            return
        if isinstance(message, Credit):
            routed.replica.instance.add_credit(message)
        else:
            self._abort(message.call_id, routed)

    def forget(self, link: RouterLink) -> None:
        """See ``CallReceiver.forget``."""
        for call_id, routed in list(self._calls.items()):
            if routed.link is link:
                self._abort(call_id, routed)

    def _begin(self, link: RouterLink, call: ServiceCall) -> None:
        if call.call_id in self._calls:
            return
        replica = self._replicas.get(call.replica_id)
        if replica is None or replica.is_withdrawn or replica.instance.is_lost:
            link.send(CallRefused(call.call_id, UNKNOWN_REPLICA))
            return
        salt = replica.admitted.salts.get(call.tenant)
        if salt is None:  # the service does not admit this namespace
            link.send(CallRefused(call.call_id, UNKNOWN_REPLICA))
            return
        if link.is_congested:
            link.send(CallRefused(call.call_id, FULL))
            return
        call = msgspec.structs.replace(call, replica_id="", cache_salt=salt, priority=CALL_PRIORITY)
        self._calls[call.call_id] = _Routed(link, replica)
        replica.calls += 1
        self._used_by(replica)
        replica.instance.add(call, self._reply)

    def _reply(self, message: ToCaller) -> None:
        routed = self._calls[message.call_id]
        if isinstance(message, CallEnded | CallRefused):
            self._end(message.call_id, routed)
        if isinstance(message, CallEnded):
            routed.replica.tokens += message.tokens_in + message.tokens_out
        routed.link.send(message)

    def _abort(self, call_id: str, routed: _Routed) -> None:
        self._end(call_id, routed)
        routed.replica.instance.abort(call_id)

    def _end(self, call_id: str, routed: _Routed) -> None:
        del self._calls[call_id]
        routed.replica.calls -= 1
        self._used_by(routed.replica)
        self._remove_if_done(routed.replica)

    def _remove_if_done(self, replica: _Replica) -> None:
        if replica.is_withdrawn and not replica.calls:
            self._replicas.pop(replica.admitted.replica_id, None)

    # -- reports ---------------------------------------------------------------------------------

    def _hello(self) -> HubHello:
        return HubHello(SERVING_VERSION, self._worker, self._incarnation, self._loads())

    def _loads(self) -> tuple[ReplicaLoad, ...]:
        return tuple(
            ReplicaLoad(
                replica_id,
                replica.admitted.service,
                replica.instance.paths,
                replica.instance.calls_max,
                replica.instance.running,
                replica.instance.queued,
            )
            for replica_id, replica in self._replicas.items()
            if not replica.is_withdrawn and not replica.instance.is_lost
        )

    def _report_soon(self) -> None:
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(_REPORT_EVERY_S, self._report)

    def _report(self) -> None:
        self._report_timer = None
        loads = ReplicaLoads(self._loads())
        for group in self._routers.values():
            for link in group.links:
                link.send(loads)

    def _used_by(self, replica: _Replica) -> None:
        self._used.add(replica)
        if self._usage_timer is None:
            loop = asyncio.get_running_loop()
            self._usage_timer = loop.call_later(_USAGE_EVERY_S, self._report_usage)

    def _report_usage(self) -> None:
        self._usage_timer = None
        for replica in self._used:
            self._report_replica(
                ReplicaUsage(replica.admitted.replica_id, replica.calls, replica.tokens)
            )
        self._used.clear()
