"""A socket connection that carries batches of messages; the agent and the host both use it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from flowmesh_core.protocol.framed_connection import (
    FRAME_BYTES_MAX,
    FramedConnection,
    Received,
)

__all__ = ["FRAME_BYTES_MAX", "Channel"]


class Channel(FramedConnection[Received], asyncio.Protocol):
    """One end of a connection that carries lists of messages."""

    def __init__(
        self,
        receives: Any,
        on_message: Callable[[Received], None],
        on_lost: Callable[[], None],
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Creates an unconnected end on the running event loop; most callers use :meth:`over`."""
        loop = asyncio.get_running_loop()
        super().__init__(
            receives, on_message, on_lost, loop.call_soon, frame_bytes_max, later=loop.call_later
        )

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

    def abort(self) -> None:
        """Closes the connection without sending what is queued."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not taken yet."""
        return 0 if self._transport is None else int(self._transport.get_write_buffer_size())
