"""A router's connection to the hub of one worker; the hub dials.

On a laptop it is a Unix socket that only one user may connect to. From another machine a hub shows
a link certificate by mutual TLS, and gets calls of the namespaces that it names, until it expires.

A hub is not trusted: what it sends is checked, and a breach of the protocol closes the connection.
One that sends nothing for two seconds, though it was asked to, is taken as gone.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec
from cryptography import x509

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.framed_connection import READ_BYTES, FramedConnection
from flowmesh_core.protocol.serving import (
    FRAME_BYTES_MAX,
    GRAPHS_MAX,
    HELLO_BYTES_MAX,
    SERVING_VERSION,
    CallEnded,
    CallRefused,
    CallTimes,
    FromRouter,
    HubHello,
    LinkRenewed,
    Piece,
    Ping,
    Pong,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
    StageFailed,
    StageReport,
    StageValue,
    ToRouter,
    UseGraph,
)
from flowmesh_core.serving.plan.report_check import LENGTH_MAX, LENGTHS_MAX
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.links.link_verifier import LinkVerifier, read_pem

if TYPE_CHECKING:
    from flowmesh_core.protocol.link_certificates import LinkClaims

HELLO_WITHIN_S = 10.0
PING_EVERY_S = 0.5
SILENT_S = 2.0
"""A hub that has not answered a ping for so long is disconnected."""
REPLICAS_MAX = 256
"""Replicas of one hub."""
LOADS_PER_S = 1000
"""A hub reports at most 200 times a second."""
RENEWALS_PER_S = 4
"""Certificates that a hub shows: each is verified, and is valid for an hour."""
STRAY_FRAMES_PER_S = 5000
"""Frames of calls that have ended or that the hub does not have."""
_CALLS_MAX = 1 << 16
_PATHS_MAX = 64
_SIZES_MAX = 256
_BATCH_S_MAX = 86_400.0
_CALLS_IN_REPORT_MAX, _SECONDS_IN_REPORT_MAX = 1 << 32, 1e9
_NAME_CHARS = 500
_PEER_CHARS = 16
_PORT = re.compile(r"tls:([1-9][0-9]{3,4})")
_PORT_MAX = (1 << 16) - 1
_log = logging.getLogger(__name__)


class Defect(Enum):
    """What is wrong with a frame of a call."""

    NONE = "none"
    NOT_ITS_CALL = "not-its-call"
    BREACH = "breach"


FromHubCall = Piece | CallEnded | CallRefused | StageValue | StageFailed | StageReport


class HubListener(Protocol):
    """The parts of the router that a link's frames are for."""

    def loads_changed(self, link: "HubLink", loads: ReplicaLoads) -> None:
        """Records the replicas of a hub, and what its stages have passed on and dropped."""
        ...

    def reply(self, link: "HubLink", message: FromHubCall) -> Defect:
        """Deals with a frame of a call; returns what is wrong with it."""
        ...

    def lost(self, link: "HubLink") -> None:
        """Forgets a hub, and ends the calls that it has."""
        ...


class HubLink(FramedConnection[ToRouter], asyncio.Protocol):
    """One hub.

    Attributes:
        worker: its worker's name; empty before its hello.
        incarnation: of its hub's process.
        peer: where it takes values of other hubs, as in ``PeerAddress``; empty where the router
            relays them.
        reports_stages: whether it says how far requests are, when it is asked.
    """

    def __init__(
        self,
        listener: HubListener,
        refused: "RefusedHubs",
        verifier: LinkVerifier | None = None,
        links: "RecentLinks | None" = None,
    ) -> None:
        """Waits for a hello.

        Args:
            listener: gets the hub's frames.
            refused: hubs that have broken the protocol a moment ago.
            verifier: verifies its link certificate; None on a Unix socket.
            links: those with certificates; None on a Unix socket.
        """
        super().__init__(
            ToRouter,
            self._receive,
            lambda: listener.lost(self),
            lambda send: asyncio.get_running_loop().call_soon(send),
            HELLO_BYTES_MAX,
            lambda s, send: asyncio.get_running_loop().call_later(s, send),
        )
        self.worker = self.incarnation = self.peer = ""
        self.reports_stages = False
        self._graphs: dict[str, None] = {}
        self._listener = listener
        self._refused_hubs = refused
        self._verifier = verifier
        self._links = links
        self._claims: LinkClaims | None = None
        self._loads, self._strays = _Rate(LOADS_PER_S), _Rate(STRAY_FRAMES_PER_S)
        self._renewals = _Rate(RENEWALS_PER_S)
        self._timer: asyncio.TimerHandle | None = None
        self._certificate_timer: asyncio.TimerHandle | None = None
        self._heard_s = 0.0

    def answer(self, message: FromRouter) -> None:
        """Sends a frame to the hub."""
        self.send(message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._timer = asyncio.get_running_loop().call_later(
            HELLO_WITHIN_S, lambda: self._refuse("there was no hello")
        )
        tls = transport.get_extra_info("ssl_object")
        if self._verifier is not None:
            self._admit(x509.load_der_x509_certificate(tls.getpeercert(binary_form=True)))
            if self._claims is not None and self._links is not None:
                self._links.add(self._claims.worker, self)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._stop_timers()
        if self._claims is not None and self._links is not None:
            self._links.remove(self._claims.worker, self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._heard_s = asyncio.get_running_loop().time()
        try:
            super().data_received(data)
        except (ProtocolError, msgspec.DecodeError) as error:
            self._breach(str(error))

    def replace(self) -> None:
        """Closes the link, as its worker has made others since."""
        self._refuse("its worker has made other connections since")
        self._abort()

    def use_graph(self, graph: LoadedGraph) -> None:
        """Sends a graph to the hub, unless it has it."""
        if graph.digest in self._graphs:
            return
        self._graphs[graph.digest] = None
        if len(self._graphs) > GRAPHS_MAX:
            del self._graphs[next(iter(self._graphs))]
        self.send(UseGraph(graph.graph))

    def _receive(self, message: ToRouter) -> None:
        if self._transport is None or self._transport.is_closing():
            return  # the rest of a frame after a breach
        match message:
            case HubHello():
                self._welcome(message)
            case _ if not self.worker:
                self._refuse("the first frame was not a hello")
            case LinkRenewed(certificate=certificate):
                self._renew(certificate)
            case ReplicaLoads():
                self._report(message)
            case Pong():
                pass
            case _:
                self._check(self._listener.reply(self, message))

    def _check(self, defect: Defect) -> None:
        if defect is Defect.BREACH:
            self._breach("a frame that its call does not allow")
        elif defect is Defect.NOT_ITS_CALL and not self._strays.allows(self._heard_s):
            self._breach(f"more than {STRAY_FRAMES_PER_S} frames a second of calls of others")

    def _report(self, loads: ReplicaLoads) -> None:
        replicas = loads.replicas
        if not self._loads.allows(self._heard_s):
            self._breach(f"more than {LOADS_PER_S} reports a second")
        elif len(replicas) > REPLICAS_MAX or not all(
            (*map(_is_valid, replicas), *map(_are_times, loads.times.values()))
        ):
            self._breach("a report that no hub makes")
        else:
            permitted = msgspec.structs.replace(loads, replicas=self._permitted(replicas))
            self._listener.loads_changed(self, permitted)

    def _welcome(self, hello: HubHello) -> None:
        if hello.version != SERVING_VERSION:
            self._refuse(f"version {hello.version} of the protocol: expected {SERVING_VERSION}")
        elif self.worker or not hello.worker:
            self._breach("a second hello, or one without a name")
        elif self._refused_hubs.has(hello.worker, self._heard_s):
            self._refuse("its hub has broken the protocol a moment ago")
        elif self._claims is not None and self._claims.worker != hello.worker:
            self._refuse(f"the link certificate is of worker {self._claims.worker}")
        else:
            self.worker, self.incarnation = hello.worker, hello.incarnation
            self.peer = self._peer_address(hello.peer)
            self.reports_stages = hello.reports_stages
            self._frame_bytes_max = FRAME_BYTES_MAX
            self.answer(RouterWelcome(SERVING_VERSION))
            self._stop_timer()
            self._ping_later()
            self._report(ReplicaLoads(hello.replicas))

    def _peer_address(self, shown: str) -> str:
        """Returns where other hubs reach this one; empty for nowhere.

        From another machine a hub gives its port only: it is where it connects from.
        """
        if self._verifier is None:  # on a Unix socket: of the same machine and user
            return shown if len(shown) <= _PEER_CHARS else ""
        port = _PORT.fullmatch(shown)
        if self._transport is None or port is None or int(port[1]) > _PORT_MAX:
            return ""
        host = self._transport.get_extra_info("peername")[0].removeprefix("::ffff:")
        return f"tls:{host}:{port[1]}"

    # -- is it alive -----------------------------------------------------------------------------

    def _ping_later(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + PING_EVERY_S
        self._timer = loop.call_at(due_s, self._ping, due_s)

    def _ping(self, due_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - due_s > PING_EVERY_S:
            self._heard_s = now_s  # this process stood still: frames of the hub wait in its socket
        if now_s - self._heard_s > SILENT_S:
            _log.warning("disconnected the hub of %s: silent for %g s", self.worker, SILENT_S)
            self._abort()
            return
        if self._verifier is not None and self._verifier.denies(self.worker):
            self._refuse("the control plane refuses its worker")
            return
        self.answer(Ping())
        self._ping_later()

    # -- its certificate -------------------------------------------------------------------------

    def _renew(self, certificate: str) -> None:
        """Has the link last as long as another certificate of the same process of the worker."""
        if self._verifier is None:
            return
        if not self._renewals.allows(self._heard_s):
            self._breach(f"more than {RENEWALS_PER_S} certificates a second")
            return
        try:
            self._admit(read_pem(certificate))
        except ProtocolError as error:
            self._refuse(error.message)

    def _admit(self, certificate: x509.Certificate) -> None:
        """Has the link last as long as a certificate; closes it where that is not valid."""
        assert self._verifier is not None, "of a Unix socket"
        try:
            claims, remaining_s = self._verifier.verify(certificate)
        except ProtocolError as error:
            self._refuse(error.message)
            return
        if self._claims is not None and _holder(claims) != _holder(self._claims):
            self._refuse(f"another link certificate is of worker {claims.worker}")
            return
        self._claims = claims
        if self._certificate_timer is not None:
            self._certificate_timer.cancel()
        self._certificate_timer = asyncio.get_running_loop().call_later(
            remaining_s, self._refuse, "its link certificate has expired"
        )

    def _permitted(self, replicas: tuple[ReplicaLoad, ...]) -> tuple[ReplicaLoad, ...]:
        """Returns the replicas that the hub may have: of the namespaces of its certificate."""
        if self._claims is None:
            return replicas
        allowed = self._claims.namespaces
        return tuple(r for r in replicas if r.service.partition("/")[0] in allowed)

    # -- what it must not do ---------------------------------------------------------------------

    def _refuse(self, reason: str) -> None:
        _log.warning("refused the hub of %s: %s", self.worker or "a worker", reason)
        self.answer(RouterRefused(reason))
        self._stop_timers()
        self.close()

    def _breach(self, reason: str) -> None:
        if self.worker:
            self._refused_hubs.add(self.worker, self._heard_s)
        self._refuse(reason[:200])
        self._abort()  # it may not read, and its calls must not wait for that

    def _abort(self) -> None:
        self._stop_timers()
        if self._transport is not None:
            self._transport.abort()

    def _stop_timers(self) -> None:
        self._stop_timer()
        if self._certificate_timer is not None:
            self._certificate_timer.cancel()
            self._certificate_timer = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RefusedHubs:
    """Workers whose hubs have broken the protocol; they are refused for some seconds."""

    SECONDS = 10.0

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def add(self, worker: str, now_s: float) -> None:
        """Refuses the hub of a worker from now on."""
        self._until_s = {w: s for w, s in self._until_s.items() if s > now_s}
        self._until_s[worker] = now_s + self.SECONDS

    def has(self, worker: str, now_s: float) -> bool:
        """Returns whether the hub of a worker is refused."""
        return self._until_s.get(worker, 0.0) > now_s


class RecentLinks:
    """The links of each worker that has shown a certificate: what bounds a link bounds a worker.

    A worker has one link; two where a router has two addresses, or where one is lost and the router
    does not know of it yet.
    """

    MOST = 2

    def __init__(self) -> None:
        self._of: dict[str, list[HubLink]] = {}

    def add(self, worker: str, link: HubLink) -> None:
        """Adds a link; closes the oldest one of the worker where there are too many."""
        links = self._of.setdefault(worker, [])
        links.append(link)
        if len(links) > self.MOST:
            links.pop(0).replace()

    def remove(self, worker: str, link: HubLink) -> None:
        """Forgets a link; may be called more than once."""
        links = self._of.get(worker, [])
        if link in links:
            links.remove(link)
        if not links:
            self._of.pop(worker, None)


class _Rate:
    """How many events of one second there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_s = self._count = 0.0

    def allows(self, now_s: float) -> bool:
        if now_s - self._since_s >= 1.0:
            self._since_s, self._count = now_s, 0
        self._count += 1
        return self._count <= self._most


def _holder(claims: "LinkClaims") -> tuple[str, str]:
    return claims.worker, claims.incarnation


def _is_valid(load: ReplicaLoad) -> bool:
    names = (load.replica_id, load.service, load.component, *load.paths)
    return (
        1 <= load.calls_max <= _CALLS_MAX
        and 0 <= load.running <= _CALLS_MAX
        and 0 <= load.queued <= _CALLS_MAX
        and len(load.paths) <= _PATHS_MAX
        and 0 <= load.cap <= _CALLS_MAX
        and _is_profile(load.sizes, load.seconds)
        and len(load.call_lengths) <= LENGTHS_MAX
        and all(0 < length <= LENGTH_MAX for length in load.call_lengths)
        and all(len(text) <= _NAME_CHARS for text in names)
    )


def _are_times(times: CallTimes) -> bool:
    """Returns whether calls can have taken so much between two reports."""
    counts = (times.calls, times.batches, times.batched)
    seconds = (times.queue_s, times.compute_s)
    return all(0 <= n <= _CALLS_IN_REPORT_MAX for n in counts) and all(
        0 <= each_s <= _SECONDS_IN_REPORT_MAX for each_s in seconds
    )


def _is_profile(sizes: Sequence[int], seconds: Sequence[float]) -> bool:
    """Returns whether times of batches can be: one that cannot spoils a report of all services."""
    return (
        len(sizes) == len(seconds) <= _SIZES_MAX
        and all(low < high for low, high in itertools.pairwise((0, *sizes, _CALLS_MAX + 1)))
        and sizes[:1] in ((), (1,))
        and all(0 < each_s <= _BATCH_S_MAX for each_s in seconds)
    )
