"""Starts resident sandboxes in the container of users' code, for the component hosts of a pod.

Each has two connections to the container: one of frames, which ends the sandbox when it is closed,
and one that the container gives to the sandbox's process, so that calls and results are not copied.
"""

import asyncio
import contextlib
import socket
import sys
from typing import TypeVar

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code.code_users import OtherTenantError
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.sidecar_client import connect
from flowmesh_worker.engines.code.sidecar_frames import (
    FRAME_BYTES_MAX,
    AttachResident,
    Ended,
    OpenResident,
    OtherTenant,
    Printed,
    ResidentOpened,
    Started,
    encoded_frame,
    frames,
    read_frame,
    write_frame,
)

_START_WITHIN_S = 60.0
_END_WITHIN_S = 10.0
_Expected = TypeVar("_Expected", ResidentOpened, Started)


class ContainerResident:
    """A resident sandbox in the container of users' code.

    Attributes:
        channel: the host's end of its connection.
        pid: 0: it is another container's process.
        lacks: empty: the container's own log has it.
    """

    pid = 0
    lacks = ""

    def __init__(
        self, channel: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.channel = channel
        self._writer = writer
        self._following = asyncio.create_task(_follow(reader))

    async def end(self) -> str:
        """See ``Resident``."""
        try:
            with contextlib.suppress(OSError):
                self._writer.write_eof()
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._following, _END_WITHIN_S)
            return ""
        finally:
            self._writer.close()


class SidecarResidents:
    """Starts resident sandboxes in the container behind a socket."""

    def __init__(self, path: str) -> None:
        """Connects with each start; ``path`` is that of the container's socket."""
        self._path = path

    async def start(self, task: SandboxRequest) -> ContainerResident:
        """Starts one within the limits of ``task``.

        Raises:
            OSError: the container does not run, or ended.
            OtherTenantError: it serves another tenant.
        """
        reader, writer = await connect(self._path)
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                channel = await self._opened(task, reader, writer)
        except BaseException:
            writer.close()
            raise
        return ContainerResident(channel, reader, writer)

    async def _opened(
        self, task: SandboxRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> socket.socket:
        """Returns the connection to the sandbox's process, once that has started."""
        write_frame(writer, OpenResident(task))
        await writer.drain()
        opened = await _expected(reader, ResidentOpened)
        channel = await self._attached(opened.key)
        try:
            await _expected(reader, Started)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _attached(self, key: str) -> socket.socket:
        """Returns a connection that the container gives to the sandbox."""
        loop = asyncio.get_running_loop()
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.setblocking(False)
            await loop.sock_connect(channel, self._path)
            await loop.sock_sendall(channel, encoded_frame(AttachResident(key)))
        except BaseException:
            channel.close()
            raise
        return channel


async def _expected(reader: asyncio.StreamReader, kind: type[_Expected]) -> _Expected:
    """Returns the container's next frame.

    Raises:
        OSError: it has ended, or sent another.
        OtherTenantError: it serves another tenant.
    """
    try:
        frame = decode(frames, await read_frame(reader, FRAME_BYTES_MAX))
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the container of the user's code has ended") from None
    if isinstance(frame, OtherTenant):
        raise OtherTenantError
    if not isinstance(frame, kind):
        raise ConnectionResetError(f"the container of the user's code sent {type(frame).__name__}")
    return frame


async def _follow(reader: asyncio.StreamReader) -> str:
    """Prints what the code prints; returns what it had more of than it may, once it has ended."""
    try:
        while True:
            frame = decode(frames, await read_frame(reader, FRAME_BYTES_MAX))
            if isinstance(frame, Ended):
                return frame.end.exceeded
            if isinstance(frame, Printed):
                sys.stdout.write(frame.data.decode(errors="replace"))
                sys.stdout.flush()
    except (asyncio.IncompleteReadError, OSError):
        return ""
