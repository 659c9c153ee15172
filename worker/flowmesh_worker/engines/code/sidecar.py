"""Runs users' code for a worker: ``python -m flowmesh_worker.engines.code.sidecar SOCKET``.

In a pod the worker may not change users, so users' code runs in a sidecar container, which has
neither the worker's token nor its credentials and files. The worker calls it over a Unix socket on
a shared volume (``sidecar_client``). It runs one call at a time, each as the user of its tenant
where the container may switch users; else it serves one tenant only (``code_users``). Beside the
calls it runs the resident sandboxes of component hosts (``container_residents``).
"""

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code.code_users import (
    CodeUsers,
    OtherTenantError,
    can_switch,
    end_user,
)
from flowmesh_worker.engines.code.container_residents import ContainerResidents
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.printed_output import forward_output
from flowmesh_worker.engines.code.process_tree import end_children
from flowmesh_worker.engines.code.processes import run_process
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox, detect_level
from flowmesh_worker.engines.code.sidecar_frames import (
    Answered,
    AttachResident,
    Described,
    Ended,
    OpenResident,
    OtherTenant,
    Started,
    read_frame,
    requests,
    write_frame,
)
from flowmesh_worker.engines.code.syscalls import adopt_orphans

_MODE = 0o660
_SCRATCH = "flowmesh-code-"


class Sidecar:
    """Serves calls from a socket, one at a time."""

    def __init__(self, scratch: Path, users: CodeUsers, sandbox: CodeSandbox) -> None:
        self._scratch = scratch
        self._users = users
        self._sandbox = sandbox
        self.leaving = asyncio.Event()
        self._lock = asyncio.Lock()
        self._residents = ContainerResidents(scratch, users, self._lock)
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one request; a call ends if the caller disconnects."""
        try:
            task = decode(requests, await read_frame(reader))
            if isinstance(task, AttachResident):
                self._residents.attach(task.key, writer)
                return
            if isinstance(task, OpenResident):
                await self._residents.open(task.task, reader, writer)
                return
            if not isinstance(task, SandboxRequest):
                await self._describe(writer)
                return
            call = asyncio.create_task(self._call(task, writer))
            disconnected = asyncio.create_task(reader.read())
            await asyncio.wait((call, disconnected), return_when=asyncio.FIRST_COMPLETED)
            for pending in (call, disconnected):
                pending.cancel()
            await asyncio.gather(call, disconnected, return_exceptions=True)
        except (ConnectionError, TimeoutError):
            pass  # the caller is gone
        except (asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            sys.stderr.write(f"a call that cannot be read: {error}\n")
        finally:
            writer.close()

    async def _describe(self, writer: asyncio.StreamWriter) -> None:
        """Answers a worker that begins; a container that belongs to a tenant ends for it."""
        leaving = self._users.used and self._sandbox.single_tenant
        write_frame(writer, Described(self._sandbox, leaving))
        await writer.drain()
        if leaving:
            self.leaving.set()

    async def _call(self, task: SandboxRequest, writer: asyncio.StreamWriter) -> None:
        async with self._lock:
            try:
                uid = self._users.uid_of(task.tenant)
            except OtherTenantError:
                write_frame(writer, OtherTenant())
                await writer.drain()
                return
            task = msgspec.structs.replace(task, wanted_uid=uid, own_user=not uid)
            write_frame(writer, Started())

            async def forward_answer(data: bytes) -> None:
                """Forwards the answer as it arrives, as fast as the caller reads it."""
                write_frame(writer, Answered(data))
                await writer.drain()

            read_end, write_end = os.pipe()
            printing = asyncio.create_task(forward_output(read_end, writer))
            try:
                end = await run_process(
                    task, self._scratch, next(self._numbers), forward_answer, output=write_end
                )
            finally:
                os.close(write_end)
                # First, since what the call left behind may hold its output open.
                async with self._residents.changing:
                    spare = frozenset(self._residents.pids)
                    await asyncio.to_thread(_end_rest, uid, spare)
                await printing
            write_frame(writer, Ended(end))
            await writer.drain()


def _end_rest(uid: int, residents: frozenset[int]) -> None:
    """Ends what a call left behind; orphans of a killed supervisor have become children."""
    end_children(residents)
    if uid:
        end_user(uid)


async def serve(socket: Path, scratch: Path, users: CodeUsers, sandbox: CodeSandbox) -> None:
    """Serves calls until SIGTERM, or until the container must begin anew.

    Args:
        socket: where to listen; its permissions decide who may call.
        scratch: the code's own directories are created below it.
        users: decides as which user a call runs.
        sandbox: what it tells workers.
    """
    sidecar = Sidecar(scratch, users, sandbox)
    server = await asyncio.start_unix_server(sidecar.serve, socket)
    os.chmod(socket, _MODE)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sidecar.leaving.set)
    async with server:
        await sidecar.leaving.wait()


def main(socket: Path) -> None:
    """Removes what an earlier container left, then serves."""
    socket.unlink(missing_ok=True)
    adopt_orphans()
    _remove_stale()
    scratch = Path(tempfile.gettempdir()) / f"{_SCRATCH}{os.getpid()}"
    scratch.mkdir(mode=0o711)
    users = CodeUsers(switches=can_switch())
    sandbox = CodeSandbox(detect_level(root=users.switches), not users.switches)
    try:
        asyncio.run(serve(socket, scratch, users, sandbox))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_stale() -> None:
    """Removes the directories of containers that were killed; a restarted one has the same id."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        pid = path.name.removeprefix(_SCRATCH)
        if pid == str(os.getpid()) or not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
