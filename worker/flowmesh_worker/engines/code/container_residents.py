"""The resident sandboxes in the container of users' code; used by :mod:`sidecar`.

Each belongs to a connection of a component host and ends with it. Where the container may switch
users, each has a uid of its own, so that the end of a call does not end it.
"""

import asyncio
import contextlib
import itertools
import os
import secrets
import socket
from pathlib import Path

import msgspec

from flowmesh_worker.engines.code.code_users import CodeUsers, OtherTenantError, end_user
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest
from flowmesh_worker.engines.code.printed_output import forward_output
from flowmesh_worker.engines.code.process_tree import end_children
from flowmesh_worker.engines.code.resident_process import ResidentProcess, start_process
from flowmesh_worker.engines.code.sidecar_frames import (
    Ended,
    OtherTenant,
    ResidentOpened,
    Started,
    write_frame,
)

_ATTACH_WITHIN_S = 10.0
_KEY_BYTES = 16
_PRINT_WITHIN_S = 1.0
"""A process that left the sandbox's group may hold its output open."""


class ContainerResidents:
    """Starts and ends them.

    Attributes:
        pids: of their processes.
        changing: held while processes are started, or ended by what :mod:`process_tree` finds.
    """

    def __init__(self, scratch: Path, users: CodeUsers, calls: asyncio.Lock) -> None:
        """Starts none.

        Args:
            scratch: the code's own directories are created below it.
            users: decides as which user each runs.
            calls: held while a call runs.
        """
        self._calls = calls
        self._scratch = scratch
        self._users = users
        self._numbers = itertools.count(1)
        self._awaited: dict[str, asyncio.Future[socket.socket]] = {}
        self.pids: set[int] = set()
        self.changing = asyncio.Lock()

    def attach(self, key: str, writer: asyncio.StreamWriter) -> None:
        """Gives a connection to the sandbox of a key; this process then has no end of it."""
        awaited = self._awaited.pop(key, None)
        if awaited is None or awaited.done():
            return
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        found: socket.socket = writer.get_extra_info("socket").dup()
        found.setblocking(True)
        awaited.set_result(found)

    async def open(
        self, task: SandboxRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Runs a sandbox until it ends, or its host closes the connection."""
        try:
            uid = self._users.take_resident(task.tenant)
        except OtherTenantError:
            write_frame(writer, OtherTenant())
            await writer.drain()
            return
        try:
            await self._run(
                msgspec.structs.replace(task, wanted_uid=uid, own_user=not uid), reader, writer
            )
        finally:
            await self._end_rest(uid)
            self._users.give_back(uid)

    async def _end_rest(self, uid: int) -> None:
        """Ends what a sandbox left behind; while a call of the same uid runs, its end does that."""
        if uid:
            async with self.changing:
                await asyncio.to_thread(end_user, uid)
        elif not self._calls.locked():
            async with self._calls, self.changing:
                await asyncio.to_thread(end_children, frozenset(self.pids))

    async def _run(
        self, task: SandboxRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        channel = await self._channel(writer)
        read_end, write_end = os.pipe()
        printing = asyncio.create_task(forward_output(read_end, writer))
        process: ResidentProcess | None = None
        try:
            jail = self._scratch / f"resident-{next(self._numbers)}"
            async with self.changing:
                process = await start_process(task, jail, channel, output=write_end)
                self.pids.add(process.pid)
            channel.close()
            write_frame(writer, Started())
            waits = [asyncio.create_task(process.wait()), asyncio.create_task(reader.read())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pending in waits:
                    pending.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
        finally:
            channel.close()
            os.close(write_end)
            end = ProcessEnd(0) if process is None else await self._ended(process)
            with contextlib.suppress(TimeoutError, OSError):
                await asyncio.wait_for(printing, _PRINT_WITHIN_S)
        write_frame(writer, Ended(end))
        await writer.drain()

    async def _ended(self, process: ResidentProcess) -> ProcessEnd:
        async with self.changing:
            end = await process.end()
            self.pids.discard(process.pid)
            return end

    async def _channel(self, writer: asyncio.StreamWriter) -> socket.socket:
        """Returns the connection that the host attaches."""
        key = secrets.token_hex(_KEY_BYTES)
        awaited = self._awaited[key] = asyncio.get_running_loop().create_future()
        try:
            write_frame(writer, ResidentOpened(key))
            await writer.drain()
            return await asyncio.wait_for(awaited, _ATTACH_WITHIN_S)
        finally:
            self._awaited.pop(key, None)
