"""A socket connection that carries batches of messages; the agent and the host both use it.

Messages sent during one iteration of the event loop leave in one frame with one system call: a
frame of many small messages costs little more than one message.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from flowmesh_core.decoding import decode

_LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = (1 << 32) - 1

Received = TypeVar("Received")


class Channel(asyncio.Protocol, Generic[Received]):
    """One end of a connection that carries lists of messages."""

    def __init__(
        self,
        receives: Any,
        on_message: Callable[[Received], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Creates an unconnected end; callers use :meth:`over`.

        Args:
            receives: the union of message types that the other end sends.
            on_message: called for every message, in order, on the event loop.
            on_lost: called once when the connection is lost.
        """
        self._decoder = msgspec.msgpack.Decoder(list[receives])
        self._encoder = msgspec.msgpack.Encoder()
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[Any] = []
        self._buffer = bytearray()

    @classmethod
    async def over(
        cls,
        connection: socket.socket,
        receives: Any,
        on_message: Callable[[Received], None],
        on_lost: Callable[[], None],
    ) -> "Channel[Received]":
        """Returns a channel over a connected socket, which the channel owns from now on."""
        channel = cls(receives, on_message, on_lost)
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=connection)
        return channel

    def send(self, message: msgspec.Struct) -> None:
        """Queues a message for this iteration's frame; does nothing once the channel is closed."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing.append(message)

    def flush(self) -> None:
        """Sends the queued messages now.

        The connection is closed where they cannot be sent: the other end would wait for them.

        Raises:
            ValueError: the frame is larger than its length field can express, or a text in it is
                not Unicode.
        """
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
            raise ValueError(f"a frame of {len(body)} bytes between agent and host is too large")
        return _LENGTH.pack(len(body)) + body

    def close(self) -> None:
        """Sends the queued messages and closes the connection."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._buffer += data
        start = 0
        while (frame := self._frame(start)) is not None:
            body, start = frame
            for message in decode(self._decoder, body):
                self._on_message(message)
        if start:
            del self._buffer[:start]

    def _frame(self, start: int) -> tuple[bytes, int] | None:
        head = start + _LENGTH.size
        if len(self._buffer) < head:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        end = head + length
        if len(self._buffer) < end:
            return None
        return bytes(self._buffer[head:end]), end

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio."""
        self._transport = None
        self._on_lost()
