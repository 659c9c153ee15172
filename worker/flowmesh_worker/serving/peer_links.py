"""A hub's links to other hubs: values go there without the router.

A hub listens on a socket in the folder ``peers`` beside the router's, which only one user may
enter, and where its pool says so on a port, for hubs of other machines. A link is used in one
direction, made with its first value, and closed after a minute without one. A value is taken only
for a request whose router has named the sender, with a key, as a peer.
"""

import asyncio
import contextlib
import functools
import logging
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

from flowmesh_core.protocol.link_certificates import VALID_S
from flowmesh_core.protocol.serving import SERVING_VERSION, FromPeer, PeerAddress, PeerHello
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_listener import DescriptorListener
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, connect_with_descriptors
from flowmesh_worker.ipc.hub_frames import RouterTls
from flowmesh_worker.serving.peer_link import Connect, Delivery, PeerLink
from flowmesh_worker.serving.peer_port import TLS, PeerPort
from flowmesh_worker.serving.peer_receiver import PeerReceiver
from flowmesh_worker.serving.peer_source import PeerSource

_FOLDER = "peers"
_NAME = re.compile(r"[0-9a-f]{16}")
_USED_S = VALID_S / 4
"""A link to another machine is made again after this time, with a new certificate."""
_log = logging.getLogger(__name__)


class PeerLinks:
    """All links of one hub."""

    def __init__(
        self,
        worker: str,
        name: str,
        receiver: PeerReceiver,
        namespaces: Callable[[], AbstractSet[str]],
    ) -> None:
        """Listens in :meth:`listen` or :meth:`use_port`.

        Args:
            worker: the hub's own.
            name: of its socket, 16 hexadecimal digits.
            receiver: gets the values.
            namespaces: returns those of which the hub has replicas.
        """
        self._worker = worker
        self._own = name
        self._receiver = receiver
        self._folder: Path | None = None
        self._listener = DescriptorListener(lambda d: PeerSource(receiver, d).channel)
        self._port = PeerPort(receiver, namespaces)
        self._links: dict[PeerAddress, PeerLink] = {}
        self._replaced: set[PeerLink] = set()

    @property
    def name(self) -> str:
        """Its socket's name, or its port; empty where it does not listen."""
        return self._own if self._folder is not None else self._port.name

    def listen(self, router: Path) -> None:
        """Listens beside the socket of a router, once; without peers where that is impossible."""
        if self._folder is not None:
            return
        folder = router.parent / _FOLDER
        try:
            self._listener.listen(folder / self._own)
        except OSError as error:
            _log.warning("values of other workers come through the router: %s", error)
            return
        self._folder = folder

    def use_port(self, port: int, tls: RouterTls) -> None:
        """Listens on a port, with a certificate; again to use another certificate."""
        try:
            self._port.use(tls, port)
        except OSError as error:
            _log.warning("values of other machines come through the router: %s", error)

    def send(self, worker: str, address: PeerAddress, one: Delivery) -> None:
        """Sends a value to a peer, or has it relayed.

        Args:
            worker: of the peer.
            address: as the router gave it.
            one: the value.
        """
        connect = self._connect(worker, address)
        if connect is None:
            one.relay()
            return
        is_remote = address.socket.startswith(TLS)
        link = self._links.get(address)
        if link is not None and is_remote and _age_s(link) > _USED_S:
            self._replaced.add(link)  # it ends when it is idle
            link = None
        if link is None:
            hello = PeerHello(SERVING_VERSION, self._worker, address.key)
            link = PeerLink(hello, self._receiver, worker, is_remote=is_remote)
            self._links[address] = link
            link.start(connect, functools.partial(self._remove, address, link))
        link.send(one)

    def close(self) -> None:
        """Disconnects from all, and listens no more."""
        self._listener.close()
        self._port.close()
        for link in [*self._links.values(), *self._replaced]:
            link.close()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / self._own).unlink()

    def _connect(self, worker: str, address: PeerAddress) -> Connect | None:
        """Returns what connects to an address; None where this hub does not reach it."""
        if address.socket.startswith(TLS) and self._port.name:

            async def by_port(channel: Channel[FromPeer]) -> None:
                await self._port.connect(worker, address.socket, channel)

            return by_port
        if self._folder is None or _NAME.fullmatch(address.socket) is None:
            return None
        path = self._folder / address.socket

        async def by_socket(channel: Channel[FromPeer]) -> DescriptorSocket:
            connection, descriptors = await connect_with_descriptors(str(path))
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: channel, sock=connection)
            return descriptors

        return by_socket

    def _remove(self, address: PeerAddress, link: PeerLink) -> None:
        """Forgets a link that has ended; one that was made again in its place stays."""
        self._replaced.discard(link)
        if self._links.get(address) is link:
            del self._links[address]


def _age_s(link: PeerLink) -> float:
    return asyncio.get_running_loop().time() - link.made_s
