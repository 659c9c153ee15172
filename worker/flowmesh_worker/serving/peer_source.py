"""A link over which another hub sends values to this one."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.link_certificates import LinkClaims
from flowmesh_core.protocol.serving import (
    PACKED_ARRAYS,
    SERVING_VERSION,
    VALUE_BYTES_MAX,
    PeerHello,
    PeerRefused,
    PeerValue,
    PeerWelcome,
    ToPeer,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.passed_values import StageBytes, receive_value
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MAX, SHARED_BYTES_MIN, SharedValue
from flowmesh_worker.serving.peer_link import checksum_of
from flowmesh_worker.serving.peer_receiver import Peer, PeerReceiver

_FRAME_BYTES_MAX = 2 * VALUE_BYTES_MAX
_REMOTE_FRAME_BYTES_MAX = SHARED_BYTES_MAX + VALUE_BYTES_MAX
_log = logging.getLogger(__name__)

Verify = Callable[[Mapping[str, Any] | None], LinkClaims]
"""Returns what the certificate of the other end says; raises ProtocolError to refuse it."""


class PeerSource:
    """A link of a peer.

    Attributes:
        channel: the connection.
    """

    def __init__(
        self,
        receiver: PeerReceiver,
        descriptors: DescriptorSocket | None = None,
        verify: Verify | None = None,
    ) -> None:
        """Waits for a connection.

        Args:
            receiver: gets the values.
            descriptors: the socket for values of a peer of this machine.
            verify: verifies the certificate of a peer of another machine.
        """
        self.channel = _SourceChannel(self, descriptors is None)
        self._descriptors = descriptors
        self._receiver = receiver
        self._verify = verify
        self._claims: LinkClaims | None = None
        self._certificate_timer: asyncio.TimerHandle | None = None
        self._peer: Peer | None = None

    def connected(self, certificate: Mapping[str, Any] | None) -> None:
        """Verifies a peer of another machine, whose link lasts as long as its certificate.

        Raises:
            ProtocolError: it may not connect.
        """
        if self._verify is None:
            return
        self._claims = self._verify(certificate)
        assert certificate is not None, "it was verified"
        remaining_s = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
        loop = asyncio.get_running_loop()
        self._certificate_timer = loop.call_later(remaining_s, self.channel.abort)

    def lost(self) -> None:
        """Frees what the link has."""
        if self._descriptors is not None:
            self._descriptors.close()
        if self._certificate_timer is not None:
            self._certificate_timer.cancel()

    def receive(self, message: ToPeer) -> None:
        """Deals with a frame.

        Raises:
            ProtocolError: the peer may not send it.
        """
        match message:
            case PeerHello(version=version, worker=worker, key=key):
                if version != SERVING_VERSION or self._peer is not None:
                    raise ProtocolError(f"the hub of {worker} sends another hello than expected")
                self._check_name(worker)
                self._peer = Peer(worker, key)
            case PeerValue() if self._peer is not None:
                self._add(self._peer, message)
            case _:
                raise ProtocolError("a hub sends a value before its hello")

    def _check_name(self, worker: str) -> None:
        if self._verify is None:
            return
        if self._claims is None or self._claims.worker != worker:
            raise ProtocolError(f"a hub says that it is of {worker}, its certificate does not")
        self.channel.send(PeerWelcome())

    def _add(self, peer: Peer, value: PeerValue) -> None:
        refused = PeerRefused(value.request_id, value.version)
        try:
            data = self._data(value)
        except ProtocolError as error:
            _log.warning("a value of the hub of %s is refused: %s", peer.worker, error)
            self.channel.send(refused)
            return
        if value.checksum != checksum_of(value.value.data):
            _log.warning("a value of the hub of %s is damaged", peer.worker)
            self.channel.send(refused)
            return
        self._receiver.add_peer_value(peer, value, data, lambda: self.channel.send(refused))

    def _data(self, value: PeerValue) -> StageBytes:
        if self._descriptors is not None:
            return receive_value(value.value, self._descriptors)
        data = value.value.data
        if value.value.number:
            raise ProtocolError("a descriptor cannot pass from another machine")
        is_packed = data.startswith(PACKED_ARRAYS) and len(data) >= SHARED_BYTES_MIN
        if not is_packed and len(data) <= VALUE_BYTES_MAX:
            return data
        try:
            return SharedValue.sealed((data,))
        except OSError as error:
            raise ProtocolError(f"there is no memory for a value: {error}") from None


class _SourceChannel(Channel[ToPeer]):
    """The connection; a peer that breaks the protocol loses it."""

    def __init__(self, source: PeerSource, is_remote: bool) -> None:
        limit = _REMOTE_FRAME_BYTES_MAX if is_remote else _FRAME_BYTES_MAX
        super().__init__(ToPeer, source.receive, source.lost, limit)
        self._source = source

    def connection_made(self, transport: Any) -> None:
        """Called by the event loop, once a certificate has been shown."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        try:
            self._source.connected(None if tls is None else tls.getpeercert())
        except ProtocolError as error:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            super().data_received(data)
        except (ProtocolError, msgspec.DecodeError) as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        _log.warning("a peer is disconnected: %s", error)
        self.abort()
