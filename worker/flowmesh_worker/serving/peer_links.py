"""A hub's links to other hubs of the same machine: values go there without the router.

A hub listens on a socket in the folder ``peers`` beside the router's, which only one user may
enter. A link is used in one direction, made with its first value, and closed after a minute without
one. A value is taken only for a request whose router has named the sender, with a key, as a peer.
"""

import asyncio
import contextlib
import logging
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    VALUE_BYTES_MAX,
    PeerAddress,
    PeerHello,
    PeerRefused,
    PeerValue,
    ToPeer,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_listener import DescriptorListener
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, connect_with_descriptors
from flowmesh_worker.ipc.passed_values import StageBytes, receive_value, send_value
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MIN

IDLE_S = 60.0
_FOLDER = "peers"
_NAME = re.compile(r"[0-9a-f]{16}")
_FRAME_BYTES_MAX = 2 * VALUE_BYTES_MAX
_CONNECT_WITHIN_S = 2.0
_log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """The hub that sent a value, as it says: the router has to have named it with this key."""

    worker: str
    key: str


class PeerReceiver(Protocol):
    """The part of the hub that deals with values between peers."""

    def add_peer_value(
        self, peer: Peer, value: PeerValue, data: StageBytes, refuse: Callable[[], None]
    ) -> None:
        """Adds a value, or calls ``refuse`` at once or later.

        Raises:
            ProtocolError: the peer may not send it; the link is closed.
        """
        ...

    def peer_refused(self, worker: str, refused: PeerRefused) -> None:
        """Has the router route a request again whose value a peer did not take."""
        ...

    def peer_lost(self, worker: str) -> None:
        """Deals with values that may not have arrived at a peer."""
        ...


class PeerLinks:
    """All links of one hub."""

    def __init__(self, worker: str, name: str, receiver: PeerReceiver) -> None:
        """Listens in :meth:`listen`.

        Args:
            worker: the hub's own.
            name: of its socket, 16 hexadecimal digits.
            receiver: gets the values.
        """
        self._worker = worker
        self._own = name
        self._receiver = receiver
        self._folder: Path | None = None
        self._listener = DescriptorListener(lambda d: _PeerSource(d, receiver).channel)
        self._links: dict[PeerAddress, _PeerLink] = {}

    @property
    def name(self) -> str:
        """The name of the socket; empty where it does not listen."""
        return self._own if self._folder is not None else ""

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

    def send(
        self,
        worker: str,
        address: PeerAddress,
        value: PeerValue,
        data: StageBytes,
        relay: Callable[[], None],
    ) -> None:
        """Sends a value to a peer.

        Args:
            worker: of the peer.
            address: as the router gave it.
            value: what it is for, without its data.
            data: the value.
            relay: sends it through the router, where the peer cannot be reached.
        """
        if self._folder is None or _NAME.fullmatch(address.socket) is None:
            relay()
            return
        link = self._links.get(address)
        if link is None:
            path = self._folder / address.socket
            hello = PeerHello(SERVING_VERSION, self._worker, address.key)
            link = _PeerLink(worker, hello, self._receiver, lambda: self._links.pop(address, None))
            self._links[address] = link
            link.start(str(path))
        link.send(value, data, relay)

    def close(self) -> None:
        """Disconnects from all, and listens no more."""
        self._listener.close()
        for link in list(self._links.values()):
            link.close()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / self._own).unlink()


class _PeerLink:
    """A link to one peer."""

    def __init__(
        self, worker: str, hello: PeerHello, receiver: PeerReceiver, ended: Callable[[], object]
    ) -> None:
        self._worker = worker
        self._hello = hello
        self._receiver = receiver
        self._ended = ended
        self._channel: Channel[PeerRefused] | None = None
        self._descriptors: DescriptorSocket | None = None
        self._waiting: list[tuple[PeerValue, StageBytes, Callable[[], None]]] = []
        self._connecting: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False

    def start(self, path: str) -> None:
        """Connects; values wait for it."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect(path))

    def send(self, value: PeerValue, data: StageBytes, relay: Callable[[], None]) -> None:
        """Sends a value, now or when the link is connected."""
        if self._channel is None or self._descriptors is None:
            self._waiting.append((value, data, relay))
            return
        self._close_later()
        try:
            named = send_value(data, self._descriptors)
        except ProtocolError:
            relay()
            return
        checksum = checksum_of(named.data)
        self._channel.send(msgspec.structs.replace(value, value=named, checksum=checksum))

    def close(self) -> None:
        """Disconnects; what was sent counts as arrived."""
        self._is_closing = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._channel is not None:
            self._channel.close()

    async def _connect(self, path: str) -> None:
        channel = Channel[PeerRefused](
            PeerRefused,
            lambda refused: self._receiver.peer_refused(self._worker, refused),
            self._lost,
        )
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                connection, self._descriptors = await connect_with_descriptors(path)
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: channel, sock=connection)
        except OSError:  # its hub is gone, or busy
            self._ended()
            for _, _, relay in self._waiting:
                relay()
            return
        self._channel = channel
        channel.send(self._hello)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.send(*one)

    def _close_later(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_S, self.close)

    def _lost(self) -> None:
        self._ended()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._descriptors is not None:
            self._descriptors.close()
        if not self._is_closing:
            self._receiver.peer_lost(self._worker)


class _PeerSource:
    """A link of a peer that sends values to this hub."""

    def __init__(self, descriptors: DescriptorSocket, receiver: PeerReceiver) -> None:
        self.channel = _SourceChannel(ToPeer, self._receive, descriptors.close, _FRAME_BYTES_MAX)
        self._descriptors = descriptors
        self._receiver = receiver
        self._peer: Peer | None = None

    def _receive(self, message: ToPeer) -> None:
        match message:
            case PeerHello(version=version, worker=worker, key=key):
                if version != SERVING_VERSION or self._peer is not None:
                    raise ProtocolError(f"the hub of {worker} sends another hello than expected")
                self._peer = Peer(worker, key)
            case PeerValue() if self._peer is not None:
                self._add(self._peer, message)
            case _:
                raise ProtocolError("a hub sends a value before its hello")

    def _add(self, peer: Peer, value: PeerValue) -> None:
        refused = PeerRefused(value.request_id, value.version)
        try:
            data = receive_value(value.value, self._descriptors)
        except ProtocolError as error:
            _log.warning("a value of the hub of %s is refused: %s", peer.worker, error)
            self.channel.send(refused)
            return
        if value.checksum != checksum_of(value.value.data):
            _log.warning("a value of the hub of %s is damaged", peer.worker)
            self.channel.send(refused)
            return
        self._receiver.add_peer_value(peer, value, data, lambda: self.channel.send(refused))


class _SourceChannel(Channel[ToPeer]):
    """The connection; a peer that breaks the protocol loses it."""

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            super().data_received(data)
        except (ProtocolError, msgspec.DecodeError) as error:
            _log.warning("a peer is disconnected: %s", error)
            self.abort()


def checksum_of(data: bytes) -> int:
    """Returns the checksum of a value that travels inside its frame; 0 for a small one."""
    return zlib.crc32(data) if len(data) >= SHARED_BYTES_MIN else 0
