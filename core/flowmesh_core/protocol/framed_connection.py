"""One end of a connection that carries lists of messages, without the event loop around it.

The channel between agent and engine host and the links between hosts, hubs and routers are built on
it. A frame is a length of four bytes (big-endian) and a MessagePack list of messages. Messages that
are sent during one iteration of the event loop leave in one frame with one system call: a frame of
many small messages costs little more than one message.
"""

import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import ProtocolError

_LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = (1 << 32) - 1
READ_BYTES = 64 << 10
"""Asked of a socket at once: for asyncio's 256 KiB, the C library maps new pages at each read."""
DEFER_S = 0.005
"""How long a deferred message waits for another one to leave with."""

Received = TypeVar("Received")


class FramedConnection(Generic[Received]):
    """One end of a connection. A subclass also is a protocol class of its event loop."""

    def __init__(
        self,
        receives: Any,
        on_message: Callable[[Received], None],
        on_lost: Callable[[], None],
        soon: Callable[[Callable[[], None]], Any],
        frame_bytes_max: int = FRAME_BYTES_MAX,
        later: Callable[[float, Callable[[], None]], Any] | None = None,
    ) -> None:
        """Creates an unconnected end.

        Args:
            receives: the union of message types that the other end sends.
            on_message: called for every message, in order, on the event loop.
            on_lost: called once when the connection is lost.
            soon: calls a function at the end of this iteration of the event loop.
            frame_bytes_max: the largest frame that the other end may send.
            later: calls a function after so many seconds; without it nothing is deferred.
        """
        self._decoder = msgspec.msgpack.Decoder(list[receives])
        self._encoder = msgspec.msgpack.Encoder()
        self._on_message = on_message
        self._on_lost = on_lost
        self._soon = soon
        self._later = later
        self._frame_bytes_max = frame_bytes_max
        self._transport: Any = None
        self._is_lost = False
        self._outgoing: list[Any] = []
        self._leaves_soon = self._leaves_later = False
        self._buffer = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Queues a message for this iteration's frame; does nothing once the connection is lost."""
        self._outgoing.append(message)
        if not self._leaves_soon:
            self._leaves_soon = True
            self._soon(self.flush)

    def defer(self, message: msgspec.Struct) -> None:
        """Queues a message for the next frame, or for one of its own after ``DEFER_S``."""
        if self._later is None:
            self.send(message)
            return
        self._outgoing.append(message)
        if not self._leaves_later:
            self._leaves_later = True
            self._later(DEFER_S, self._flush_deferred)

    def _flush_deferred(self) -> None:
        self._leaves_later = False
        self.flush()

    def flush(self) -> None:
        """Sends the queued messages now.

        The connection is closed where they cannot be sent: the other end would wait for them.

        Raises:
            ValueError: the frame is larger than its length field can express, or a text in it is
                not Unicode.
        """
        self._leaves_soon = False
        if self._transport is None and not self._is_lost:
            return  # they leave when it is connected
        messages, self._outgoing = self._outgoing, []
        if not messages or self._transport is None or self._transport.is_closing():
            return
        try:
            frame = self._encoded(messages)
        except Exception:
            self._transport.close()
            raise
        self._transport.write(frame)

    def _encoded(self, messages: list[Any]) -> bytes:
        body = self._encoder.encode(messages)
        if len(body) > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {len(body)} bytes between two processes is too large")
        return _LENGTH.pack(len(body)) + body

    def close(self) -> None:
        """Sends the queued messages and closes the connection."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: Any) -> None:
        """Called by the event loop."""
        self._transport = transport
        if self._outgoing and not self._leaves_soon:
            self._leaves_soon = True
            self._soon(self.flush)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop.

        Raises:
            ProtocolError: the other end announces a frame that is too large.
            msgspec.DecodeError: it sends what is not such a message.
        """
        received: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            received = self._buffer
        start = 0
        while end := self._frame_end(received, start):
            body = bytes(memoryview(received)[start + _LENGTH.size : end])
            start = end
            for message in decode(self._decoder, body):
                self._on_message(message)
        if received is data:
            self._buffer += data[start:]
        else:
            del self._buffer[:start]

    def _frame_end(self, received: bytes | bytearray, start: int) -> int:
        """Returns where a frame ends; 0 where it is not here yet."""
        head = start + _LENGTH.size
        if len(received) < head:
            return 0
        (length,) = _LENGTH.unpack_from(received, start)
        if length > self._frame_bytes_max:
            raise ProtocolError(
                f"the other end announces a frame of {length} bytes: expected at most"
                f" {self._frame_bytes_max}"
            )
        end: int = head + length
        return end if len(received) >= end else 0

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        del error
        self._transport, self._is_lost = None, True
        self._on_lost()
