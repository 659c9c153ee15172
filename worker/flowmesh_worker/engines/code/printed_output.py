"""Forwards what users' code prints in its container to the worker's log."""

import asyncio
import contextlib
import os

from flowmesh_worker.engines.code.sidecar_frames import CHUNK_BYTES, Printed, write_frame


async def forward_output(descriptor: int, writer: asyncio.StreamWriter) -> None:
    """Sends what comes from a pipe, until its other ends are closed.

    Args:
        descriptor: the pipe's end, which is closed afterwards.
        writer: of the connection to the worker.
    """
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while data := await reader.read(CHUNK_BYTES):
            write_frame(writer, Printed(data))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
    finally:
        transport.close()
