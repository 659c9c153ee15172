"""``python -m flowmesh_worker.engines.code.sidecar SOCKET``: runs users' code for the worker.

In a pod the worker may not change users, so its users' code runs in a container beside it, which
has a uid of its own and neither the worker's token nor its credentials and files. The worker calls
over a Unix socket on a volume that both see. One call at a time: calls share the container's uid,
and code that runs beside other code of the same uid could end it.
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
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.processes import Take, run_process

VARIABLE = "FLOWMESH_CODE_SOCKET"
"""Names the socket; set in the worker's environment where there is such a container."""
_LENGTH_BYTES = 4
_MODE = 0o660
_CHUNK_BYTES = 1 << 16
_FRAME_BYTES_MAX = 2 * _CHUNK_BYTES
_RESTARTS = 100
_RESTART_S = 0.1


class Started(msgspec.Struct, frozen=True, tag="Started"):
    """The call's turn has come: its time counts from now on."""


class Printed(msgspec.Struct, frozen=True, tag="Printed"):
    """What the code printed."""

    data: bytes


class Answered(msgspec.Struct, frozen=True, tag="Answered"):
    """The next bytes of the encoded ``Answer``."""

    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="Ended"):
    """The process has ended, with this exit code."""

    code: int


_frames = msgspec.msgpack.Decoder(Started | Printed | Answered | Ended)
_tasks = msgspec.msgpack.Decoder(SandboxRequest)


async def call_sidecar(socket: str, task: SandboxRequest, timeout_s: float, take: Take) -> int:
    """Runs a task in the container beside this one; what it prints is printed here.

    Args:
        socket: path of the container's socket.
        task: what to run.
        timeout_s: from the call's turn on.
        take: is given the encoded ``Answer`` in pieces; what it raises ends the call.

    Returns:
        The exit code.

    Raises:
        TimeoutError: it took longer; it is ended.
        OSError: the container is not there, or went away.
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
                    return frame.code
                if isinstance(frame, Answered):
                    await take(frame.data)
                elif isinstance(frame, Started):
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout_s)
                else:
                    sys.stdout.write(frame.data.decode(errors="replace"))
                    sys.stdout.flush()
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the container of the user's code went away") from None
    finally:
        writer.close()


async def _connect(socket: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The container starts beside the worker, and anew after it ran out of memory."""
    for _ in range(_RESTARTS):
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return await asyncio.open_unix_connection(socket)
        await asyncio.sleep(_RESTART_S)
    return await asyncio.open_unix_connection(socket)


class Sidecar:
    """Serves calls from a socket, one at a time."""

    def __init__(self, scratch: Path) -> None:
        """Takes where the code's own directories are made."""
        self._scratch = scratch
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection is one call; the caller's leaving ends it."""
        try:
            task = decode(_tasks, await _read(reader))
            call = asyncio.create_task(self._call(task, writer))
            left = asyncio.create_task(reader.read())
            await asyncio.wait((call, left), return_when=asyncio.FIRST_COMPLETED)
            for one in (call, left):
                one.cancel()
            await asyncio.gather(call, left, return_exceptions=True)
        except (asyncio.IncompleteReadError, msgspec.DecodeError) as error:
            sys.stderr.write(f"a call that cannot be read: {error}\n")
        finally:
            writer.close()

    async def _call(self, task: SandboxRequest, writer: asyncio.StreamWriter) -> None:
        async with self._turn:
            _write(writer, Started())

            async def hand_on(data: bytes) -> None:
                """Gives the answer away as it comes, as fast as the caller takes it."""
                _write(writer, Answered(data))
                await writer.drain()

            read_end, write_end = os.pipe()
            printing = asyncio.create_task(_forward(read_end, writer))
            try:
                task = msgspec.structs.replace(task, own_user=True)
                code = await run_process(
                    task, self._scratch, next(self._numbers), hand_on, output=write_end
                )
            finally:
                os.close(write_end)
                await printing
            _write(writer, Ended(code))
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
        raise ConnectionResetError("the container of the user's code wrote no frame")
    return await reader.readexactly(length)


async def serve(socket: Path, scratch: Path) -> None:
    """Serves calls until SIGTERM.

    Args:
        socket: where to listen; who may write there may call.
        scratch: below it the code's own directories are made.
    """
    server = await asyncio.start_unix_server(Sidecar(scratch).serve, socket)
    os.chmod(socket, _MODE)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with server:
        await stop.wait()


def main(socket: Path) -> None:
    """Takes over a socket that an earlier container left, and serves."""
    socket.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="code-") as scratch:
        asyncio.run(serve(socket, Path(scratch)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
