"""The port of a hub for values of hubs on other machines, and its connections to theirs.

Both ends show their link certificate. A hub accepts another one that has replicas of a namespace of
its own, for the same routers; what it then may send is checked by the request.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.link_certificates import LinkClaims, shown_claims
from flowmesh_core.protocol.serving import FromPeer
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.hub_frames import RouterTls
from flowmesh_worker.serving.link_tls import peer_contexts
from flowmesh_worker.serving.peer_receiver import PeerReceiver
from flowmesh_worker.serving.peer_source import PeerSource
from flowmesh_worker.serving.unfinished_frames import UnfinishedFrames

if TYPE_CHECKING:
    import ssl

TLS = "tls:"
_HANDSHAKE_WITHIN_S = 5.0
_CONNECTIONS_MAX = 256
_RETRY_S = 0.1
_log = logging.getLogger(__name__)


class PeerPort:
    """The port of one hub."""

    def __init__(self, receiver: PeerReceiver, namespaces: Callable[[], AbstractSet[str]]) -> None:
        """Listens in :meth:`use`.

        Args:
            receiver: gets the values.
            namespaces: returns those of which the hub has replicas.
        """
        self._receiver = receiver
        self._namespaces = namespaces
        self._tls: RouterTls | None = None
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None
        self._listener: socket.socket | None = None
        self._accepted: set[asyncio.Transport] = set()
        self._unfinished = UnfinishedFrames()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """The port, as routers are shown it; empty where it does not listen."""
        return "" if self._listener is None else f"{TLS}{self._listener.getsockname()[1]}"

    def use(self, tls: RouterTls, port: int) -> None:
        """Shows this certificate at connections from now on, and listens, once.

        Raises:
            OSError: the certificate cannot be used, or the port not be opened.
        """
        if tls == self._tls:
            return
        self._server, self._client = peer_contexts(tls)
        self._tls = tls
        if self._listener is None:
            self._listener = _listening(port)
            self._do(self._accept_always(self._listener))

    async def connect(self, worker: str, address: str, channel: Channel[FromPeer]) -> None:
        """Connects a channel to the hub of a worker.

        Args:
            worker: its name, which its certificate has to have.
            address: ``tls:HOST:PORT``.
            channel: gets the connection.

        Raises:
            OSError: nothing answers there, or not by TLS with a link certificate.
            ProtocolError: it is another worker's hub.
        """
        host, _, port = address.removeprefix(TLS).rpartition(":")
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: channel,
            host,
            int(port),
            ssl=self._client,
            server_hostname="",
            ssl_handshake_timeout=_HANDSHAKE_WITHIN_S,
        )
        claims = self._verified(transport.get_extra_info("ssl_object").getpeercert())
        if claims.worker != worker:
            raise ProtocolError(f"at {address} is the hub of {claims.worker}, not of {worker}")

    def close(self) -> None:
        """Listens no more, and ends the connections of other hubs."""
        for transport in self._accepted:
            transport.abort()
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _verified(self, certificate: Mapping[str, Any] | None) -> LinkClaims:
        claims = shown_claims(certificate)
        if self._tls is None or claims.group != self._tls.group:
            raise ProtocolError(f"the hub of {claims.worker} is for the routers {claims.group!r}")
        if self._namespaces().isdisjoint(claims.namespaces):
            raise ProtocolError(f"the hub of {claims.worker} has no namespace of this one")
        return claims

    async def _accept_always(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # this process has too many files open
                await asyncio.sleep(_RETRY_S)
                continue
            self._accepted = {each for each in self._accepted if not each.is_closing()}
            if len(self._tasks) + len(self._accepted) > _CONNECTIONS_MAX:
                connection.close()
            else:
                self._do(self._accept(connection))

    async def _accept(self, connection: socket.socket) -> None:
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._source().channel,
                connection,
                ssl=self._server,
                ssl_handshake_timeout=_HANDSHAKE_WITHIN_S,
            )
        except OSError as error:
            _log.warning("a connection to the port for values is refused: %s", error)
        else:
            self._accepted.add(transport)

    def _source(self) -> PeerSource:
        return PeerSource(self._receiver, verify=self._verified, unfinished=self._unfinished)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _listening(port: int) -> socket.socket:
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)
    listener.setblocking(False)
    return listener
