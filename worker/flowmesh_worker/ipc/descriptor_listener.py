"""Listens on a Unix socket of mode 0600 for clients that pass descriptors beside their frames."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket, accept_with_descriptors

_RETRY_S = 0.1


class DescriptorListener:
    """Accepts connections until it is closed; those that it has accepted go on."""

    def __init__(self, connected: Callable[[DescriptorSocket], Channel[Any]]) -> None:
        """Listens in :meth:`listen`.

        Args:
            connected: returns the channel of a new connection.
        """
        self._connected = connected
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, path: Path) -> None:
        """Accepts connections from now on.

        Raises:
            OSError: the socket cannot be created.
        """
        path.parent.mkdir(mode=0o700, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            listener.listen()
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        self._listener = listener
        self._do(self._accept_always(listener))

    def close(self) -> None:
        """Accepts no further connection."""
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._listener.close()

    async def _accept_always(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # this process has too many files open
                await asyncio.sleep(_RETRY_S)
                continue
            self._do(self._accept(connection))

    async def _accept(self, connection: socket.socket) -> None:
        try:
            descriptors = await accept_with_descriptors(connection)
        except asyncio.CancelledError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            sys.stdout.write(f"a connection is refused: {error}\n")
            return
        channel = self._connected(descriptors)
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=connection)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
