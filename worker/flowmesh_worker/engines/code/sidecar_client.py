"""Calls the container of users' code: one connection for each call.

Used by the engine hosts, and once by the worker, which reports what the container is.
"""

import asyncio
import contextlib
import sys

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code.code_users import OtherTenantError
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest
from flowmesh_worker.engines.code.processes import Take
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox
from flowmesh_worker.engines.code.sidecar_frames import (
    FRAME_BYTES_MAX,
    Answered,
    Describe,
    Described,
    Ended,
    OtherTenant,
    Printed,
    Started,
    frames,
    read_frame,
    write_frame,
)

VARIABLE = "FLOWMESH_CODE_SOCKET"
"""Path of the socket; set in the worker's environment if the pod has the sidecar."""
_RESTARTS = 100
_RESTART_S = 0.1


async def describe_sidecar(socket: str) -> CodeSandbox:
    """Returns what the container is, once it is fresh: one that has run a tenant's code restarts.

    Raises:
        OSError: it does not run.
    """
    while True:
        reader, writer = await connect(socket)
        try:
            write_frame(writer, Describe())
            frame = decode(frames, await read_frame(reader, FRAME_BYTES_MAX))
            if isinstance(frame, Described) and not frame.leaving:
                return frame.sandbox
            await reader.read()  # until it has ended
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
        await asyncio.sleep(_RESTART_S)


async def call_sidecar(
    socket: str, task: SandboxRequest, timeout_s: float, take: Take
) -> ProcessEnd:
    """Runs a task in the sidecar container; its output is printed here.

    Args:
        socket: path of the container's socket.
        task: the call.
        timeout_s: counted from ``Started``.
        take: gets the encoded ``SandboxResult`` in pieces; an exception ends the call.

    Returns:
        How the process ended.

    Raises:
        TimeoutError: the call took longer and was ended.
        OSError: the container does not run, or ended.
        OtherTenantError: it serves another tenant.
    """
    reader, writer = await connect(socket)
    try:
        write_frame(writer, task)
        await writer.drain()
        deadline: asyncio.Timeout
        async with asyncio.timeout(None) as deadline:
            while True:
                frame = decode(frames, await read_frame(reader, FRAME_BYTES_MAX))
                if isinstance(frame, Ended):
                    return frame.end
                if isinstance(frame, Answered):
                    await take(frame.data)
                elif isinstance(frame, OtherTenant):
                    raise OtherTenantError
                elif isinstance(frame, Started):
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout_s)
                elif isinstance(frame, Printed):
                    sys.stdout.write(frame.data.decode(errors="replace"))
                    sys.stdout.flush()
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the container of the user's code has ended") from None
    finally:
        writer.close()


async def connect(socket: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects, and waits for a container that is starting, or restarting out of memory."""
    for _ in range(_RESTARTS):
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return await asyncio.open_unix_connection(socket)
        await asyncio.sleep(_RESTART_S)
    return await asyncio.open_unix_connection(socket)
