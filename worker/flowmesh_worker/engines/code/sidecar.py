"""Runs users' code for a worker: ``python -m flowmesh_worker.engines.code.sidecar SOCKET``.

In a pod the worker may not change users, so users' code runs in a sidecar container, which has a
uid of its own and neither the worker's token nor its credentials and files. The worker calls it
over a Unix socket on a shared volume. It runs one call at a time: calls share the container's uid,
and a process could kill others of the same uid.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from pathlib import Path

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_worker.engines.code.limits import ProcessEnd, SandboxRequest
from flowmesh_worker.engines.code.processes import Take, run_process

VARIABLE = "FLOWMESH_CODE_SOCKET"
"""Path of the socket; set in the worker's environment if the pod has the sidecar."""
_LENGTH_BYTES = 4
_MODE = 0o660
_CHUNK_BYTES = 1 << 16
_FRAME_BYTES_MAX = 2 * _CHUNK_BYTES
_RESTARTS = 100
_RESTART_S = 0.1


class Started(msgspec.Struct, frozen=True, tag="Started"):
    """The call begins; its timeout counts from now on."""


class Printed(msgspec.Struct, frozen=True, tag="Printed"):
    """Output that the code printed."""

    data: bytes


class Answered(msgspec.Struct, frozen=True, tag="Answered"):
    """The next bytes of the encoded ``SandboxResult``."""

    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="Ended"):
    """The process has ended."""

    end: ProcessEnd


_frames = msgspec.msgpack.Decoder(Started | Printed | Answered | Ended)
_tasks = msgspec.msgpack.Decoder(SandboxRequest)


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
    """
    reader, writer = await _connect(socket)
    try:
        _write(writer, task)
        await writer.drain()
        deadline: asyncio.Timeout
        async with asyncio.timeout(None) as deadline:
            while True:
                frame = decode(_frames, await _read(reader, _FRAME_BYTES_MAX))
                if isinstance(frame, Ended):
                    return frame.end
                if isinstance(frame, Answered):
                    await take(frame.data)
                elif isinstance(frame, Started):
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout_s)
                else:
                    sys.stdout.write(frame.data.decode(errors="replace"))
                    sys.stdout.flush()
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the container of the user's code has ended") from None
    finally:
        writer.close()


async def _connect(socket: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects, and waits for a container that is starting, or restarting out of memory."""
    for _ in range(_RESTARTS):
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return await asyncio.open_unix_connection(socket)
        await asyncio.sleep(_RESTART_S)
    return await asyncio.open_unix_connection(socket)


class Sidecar:
    """Serves calls from a socket, one at a time."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._lock = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one call; it ends if the caller disconnects."""
        try:
            task = decode(_tasks, await _read(reader))
            call = asyncio.create_task(self._call(task, writer))
            disconnected = asyncio.create_task(reader.read())
            await asyncio.wait((call, disconnected), return_when=asyncio.FIRST_COMPLETED)
            for pending in (call, disconnected):
                pending.cancel()
            await asyncio.gather(call, disconnected, return_exceptions=True)
        except (asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            sys.stderr.write(f"a call that cannot be read: {error}\n")
        finally:
            writer.close()

    async def _call(self, task: SandboxRequest, writer: asyncio.StreamWriter) -> None:
        async with self._lock:
            _write(writer, Started())

            async def forward_answer(data: bytes) -> None:
                """Forwards the answer as it arrives, as fast as the caller reads it."""
                _write(writer, Answered(data))
                await writer.drain()

            read_end, write_end = os.pipe()
            printing = asyncio.create_task(_forward(read_end, writer))
            try:
                task = msgspec.structs.replace(task, own_user=True)
                end = await run_process(
                    task, self._scratch, next(self._numbers), forward_answer, output=write_end
                )
            finally:
                os.close(write_end)
                await printing
            _write(writer, Ended(end))
            await writer.drain()


async def _forward(descriptor: int, writer: asyncio.StreamWriter) -> None:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while data := await reader.read(_CHUNK_BYTES):
            _write(writer, Printed(data))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
    finally:
        transport.close()


def _write(writer: asyncio.StreamWriter, frame: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(frame)
    writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)


async def _read(reader: asyncio.StreamReader, bytes_max: int | None = None) -> bytes:
    length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
    if bytes_max is not None and length > bytes_max:
        raise ConnectionResetError("the container of the user's code wrote an invalid frame")
    return await reader.readexactly(length)


async def serve(socket: Path, scratch: Path) -> None:
    """Serves calls until SIGTERM.

    Args:
        socket: where to listen; its permissions decide who may call.
        scratch: the code's own directories are created below it.
    """
    server = await asyncio.start_unix_server(Sidecar(scratch).serve, socket)
    os.chmod(socket, _MODE)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with server:
        await stop.wait()


def main(socket: Path) -> None:
    """Removes the socket of an earlier container, then serves."""
    socket.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="code-") as scratch:
        asyncio.run(serve(socket, Path(scratch)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
