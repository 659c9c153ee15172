"""A link over which a hub sends values to one other hub."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.serving import (
    VALUE_BYTES_MAX,
    FromPeer,
    PeerHello,
    PeerRefused,
    PeerValue,
    PeerWelcome,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.passed_values import StageBytes, send_value, size_of
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MIN
from flowmesh_worker.serving.peer_receiver import PeerReceiver

IDLE_S = 60.0
RETRY_S = 30.0
"""A hub of another machine that could not be reached is tried again after this time."""
_CONNECT_WITHIN_S = 2.0

Connect = Callable[[Channel[FromPeer]], Awaitable[DescriptorSocket | None]]
"""Connects a channel to a hub, and returns its socket for values, which other machines lack."""


class Delivery(NamedTuple):
    """A value on its way to another hub.

    Attributes:
        value: what it is for, without its data.
        data: the value.
        relay: sends it through the router, where the other hub cannot be reached.
        sent: called where it was sent directly.
    """

    value: PeerValue
    data: StageBytes
    relay: Callable[[], None]
    sent: Callable[[], None]


class PeerLink:
    """A link to one peer.

    To another machine the first values go through the router, until the other hub has welcomed this
    one: a machine that cannot be reached delays no request.

    Attributes:
        made_s: when it was made, by the event loop's clock.
    """

    def __init__(
        self, hello: PeerHello, receiver: PeerReceiver, worker: str, *, is_remote: bool
    ) -> None:
        """Connects in :meth:`start`.

        Args:
            hello: the first frame.
            receiver: is called where values do not arrive.
            worker: of the peer.
            is_remote: whether the peer is on another machine.
        """
        self._loop = asyncio.get_running_loop()
        self.made_s = self._used_s = self._loop.time()
        self._hello = hello
        self._receiver = receiver
        self._worker = worker
        self._is_remote = is_remote
        self._ended: Callable[[], object] = lambda: None
        self._channel: Channel[FromPeer] | None = None
        self._descriptors: DescriptorSocket | None = None
        self._waiting: list[Delivery] = []
        self._welcomed = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_ready = self._has_failed = self._is_closing = False

    def start(self, connect: Connect, ended: Callable[[], object]) -> None:
        """Connects.

        Args:
            connect: opens the connection.
            ended: called when the link is of no use any more.
        """
        self._ended = ended
        self._connecting = self._loop.create_task(self._connect(connect))

    def send(self, one: Delivery) -> None:
        """Sends a value, now or when the link is connected, or has it relayed."""
        if self._is_ready:
            self._send(one)
        elif self._has_failed or (self._is_remote and size_of(one.data) <= VALUE_BYTES_MAX):
            one.relay()
        else:
            self._waiting.append(one)

    def close(self) -> None:
        """Disconnects; what was sent counts as arrived, and the next value makes another link."""
        self._is_closing = True
        self._ended()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._channel is not None:
            self._channel.close()

    def _send(self, one: Delivery) -> None:
        assert self._channel is not None, "the link is ready"
        self._note_use()
        try:
            named = send_value(one.data, self._descriptors)
        except ProtocolError:
            one.relay()
            return
        checksum = checksum_of(named.data)
        self._channel.send(msgspec.structs.replace(one.value, value=named, checksum=checksum))
        if checksum:
            self._channel.flush()  # a frame has one large value
        one.sent()

    async def _connect(self, connect: Connect) -> None:
        channel = Channel[FromPeer](FromPeer, self._receive, self._lost)
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                self._descriptors = await connect(channel)
                self._channel = channel
                channel.send(self._hello)
                if self._is_remote:
                    await self._welcomed.wait()
        except (OSError, ProtocolError, ValueError):  # its hub is gone, or busy, or another's
            self._fail(channel)
            return
        if self._has_failed:
            return  # it was lost at once
        self._is_ready = True
        self._note_use()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._send(one)

    def _fail(self, channel: Channel[FromPeer]) -> None:
        """Has everything relayed; for some time, where the peer is on another machine."""
        if self._has_failed:
            return
        self._has_failed = True
        if self._is_remote:
            self._idle_timer = self._loop.call_later(RETRY_S, self._ended)
        else:
            self._ended()
        channel.abort()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.relay()

    def _receive(self, message: FromPeer) -> None:
        match message:
            case PeerRefused():
                self._receiver.peer_refused(self._worker, message)
            case PeerWelcome():
                self._welcomed.set()

    def _note_use(self) -> None:
        """Puts off the end of an idle link; it has one timer, not one for each value."""
        self._used_s = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_at(self._used_s + IDLE_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        due_s = self._used_s + IDLE_S
        if self._loop.time() < due_s:
            self._idle_timer = self._loop.call_at(due_s, self._close_if_idle)
        else:
            self.close()

    def _lost(self) -> None:
        if self._descriptors is not None:
            self._descriptors.close()
        if not self._is_ready:
            if self._channel is not None and not self._is_closing:
                self._fail(self._channel)
                self._welcomed.set()
            return
        self._ended()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._is_closing:
            self._receiver.peer_lost(self._worker)


def checksum_of(data: bytes) -> int:
    """Returns the checksum of a value that travels inside its frame; 0 for a small one."""
    return zlib.crc32(data) if len(data) >= SHARED_BYTES_MIN else 0
