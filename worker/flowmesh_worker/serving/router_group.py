"""The routers at one address: a Unix socket has one, a name of a cluster may have several.

A headless Service of Kubernetes has the addresses of all routers, so a hub finds new ones, and
those that are gone, without the control plane.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import FromRouter, HubHello
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.hub_frames import RouterTls
from flowmesh_worker.serving.link_tls import router_context
from flowmesh_worker.serving.router_link import CallReceiver, RouterLink

if TYPE_CHECKING:
    import ssl

UNIX, _TLS = "unix:", "tls:"
_RESOLVE_EVERY_S = 2.0
_CONNECT_WITHIN_S = 10.0
"""With the handshake. The kernel alone would wait longer and longer between its packets, so that a
link which is back would not be used for a minute."""


class RouterGroup:
    """Connections to all routers at an address."""

    def __init__(
        self,
        address: str,
        tls: RouterTls | None,
        hello: Callable[[], HubHello],
        receiver: CallReceiver,
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: ``unix:PATH`` or ``tls:HOST:PORT``.
            tls: of a ``tls:`` address.
            hello: returns the hub's first frame.
            receiver: gets the frames of all routers.

        Raises:
            ProtocolError: the address has another form.
            OSError: the certificates cannot be used.
        """
        self._address = address
        self._tls = tls
        self._hello = hello
        self._receiver = receiver
        self._path = self._host = ""
        self._port = 0
        self._context: ssl.SSLContext | None = None
        self._links: dict[str, tuple[RouterLink, asyncio.Task[None]]] = {}
        self._resolving: asyncio.Task[None] | None = None
        host, colon, port = address.removeprefix(_TLS).rpartition(":")
        if address.startswith(UNIX):
            self._path = address.removeprefix(UNIX)
        elif address.startswith(_TLS) and host and colon and port.isdigit() and tls is not None:
            self._host, self._port = host, int(port)
            self._context = router_context(tls)
        else:
            raise ProtocolError(
                f"{address!r} is not the address of routers:"
                f" expected {UNIX}PATH, or {_TLS}HOST:PORT with certificates"
            )

    @property
    def links(self) -> Sequence[RouterLink]:
        """A link to each router."""
        return [link for link, _ in self._links.values()]

    def start(self) -> None:
        """Connects, and stays connected until :meth:`close`."""
        if self._path:
            self._add(self._path)
        else:
            self._resolving = asyncio.get_running_loop().create_task(self._resolve_always())

    def accepts(self, tls: RouterTls | None) -> bool:
        """Goes on with another link certificate; returns False where other certificates verify.

        Raises:
            OSError: the certificates cannot be used.
        """
        if (self._tls is None) or (tls is None) or self._tls.ca != tls.ca:
            return self._tls == tls
        if tls != self._tls:
            self._tls, self._context = tls, router_context(tls)
            for link in self.links:
                link.renew(tls.certificate)
        return True

    def close(self) -> None:
        """Disconnects from all."""
        if self._resolving is not None:
            self._resolving.cancel()
        for _, task in self._links.values():
            task.cancel()

    async def _resolve_always(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError):  # what was found before holds
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                self._use({str(entry[4][0]) for entry in found})
            await asyncio.sleep(_RESOLVE_EVERY_S)

    def _use(self, hosts: set[str]) -> None:
        """Adds links to new addresses, and drops those to addresses that are gone and silent."""
        for host in self._links.keys() - hosts:
            link, task = self._links[host]
            if not link.is_connected:  # else it is about to stop, and ends its calls first
                task.cancel()
                del self._links[host]
        for host in hosts - self._links.keys():
            self._add(host)

    def _add(self, where: str) -> None:
        async def connect(channel: Channel[FromRouter]) -> None:
            loop = asyncio.get_running_loop()
            if self._path:
                await loop.create_unix_connection(lambda: channel, self._path)
                return
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                await loop.create_connection(
                    lambda: channel,
                    where,
                    self._port,
                    ssl=self._context,
                    server_hostname=self._host,
                )

        link = RouterLink(f"{self._address} ({where})", connect, self._hello, self._receiver)
        self._links[where] = (link, asyncio.get_running_loop().create_task(link.run()))
