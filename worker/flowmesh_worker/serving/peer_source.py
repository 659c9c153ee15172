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
from flowmesh_worker.serving.unfinished_frames import FRAME_WITHIN_S, UnfinishedFrames

HELLO_BYTES_MAX = 4 << 10
"""The largest frame of a peer that has not said who it is."""
HELLO_WITHIN_S = 5.0
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
        unfinished: UnfinishedFrames | None = None,
    ) -> None:
        """Waits for a connection.

        Args:
            receiver: gets the values.
            descriptors: the socket for values of a peer of this machine.
            verify: verifies the certificate of a peer of another machine.
            unfinished: counts what such peers have sent of frames that are not whole yet.
        """
        self.channel = _SourceChannel(self, unfinished)
        self._descriptors = descriptors
        self._receiver = receiver
        self._verify = verify
        self._claims: LinkClaims | None = None
        self._certificate_timer: asyncio.TimerHandle | None = None
        self._peer: Peer | None = None

    @property
    def worker(self) -> str:
        """The worker of a peer of another machine, as its certificate says."""
        return "" if self._claims is None else self._claims.worker

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
                self.channel.welcome()
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

    def __init__(self, source: PeerSource, unfinished: UnfinishedFrames | None) -> None:
        """Reads a hello; from another machine nothing comes with it.

        Args:
            source: gets the frames.
            unfinished: of peers of other machines; None for one of this machine.
        """
        limit = _FRAME_BYTES_MAX if unfinished is None else HELLO_BYTES_MAX
        super().__init__(ToPeer, self._received, self._ended, limit)
        self._source = source
        self._unfinished = unfinished
        self._counted = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Called by the event loop, once a certificate has been shown."""
        super().connection_made(transport)
        self._expect_within(HELLO_WITHIN_S, "there was no hello")
        tls = transport.get_extra_info("ssl_object")
        try:
            self._source.connected(None if tls is None else tls.getpeercert())
        except ProtocolError as error:
            self._refuse(error)

    def welcome(self) -> None:
        """Takes values from now on."""
        if self._unfinished is not None:
            self._frame_bytes_max = _REMOTE_FRAME_BYTES_MAX

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            super().data_received(data)
            if self._unfinished is not None:
                self._count(self._unfinished)
        except (ProtocolError, msgspec.DecodeError) as error:
            self._refuse(error)

    def _received(self, message: ToPeer) -> None:
        self._stop_timer()  # a frame has ended
        self._source.receive(message)

    def _count(self, unfinished: UnfinishedFrames) -> None:
        """Counts what has come of the next frame.

        Raises:
            ProtocolError: it is too much, with what others have sent.
        """
        held = len(self._buffer)
        if held and self._timer is None:
            self._expect_within(FRAME_WITHIN_S, "a frame did not end")
        change, self._counted = held - self._counted, held
        if change:
            unfinished.change(self._source.worker, change)

    def _expect_within(self, within_s: float, reason: str) -> None:
        error = ProtocolError(f"{reason} within {within_s:g} s")
        self._timer = asyncio.get_running_loop().call_later(within_s, self._refuse, error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, error: Exception) -> None:
        _log.warning("a peer is disconnected: %s", error)
        self.abort()

    def _ended(self) -> None:
        self._stop_timer()
        self._buffer = bytearray()
        if self._unfinished is not None and self._counted:
            self._unfinished.change(self._source.worker, -self._counted)
            self._counted = 0
        self._source.lost()
