"""Receives the bodies of uploads into files: no body is held in memory."""

import asyncio
import shutil
from pathlib import Path

from aiohttp import StreamReader

from flowmesh_core.errors import FlowMeshError, StoreFullError
from flowmesh_store.spool import SpooledFile, SpoolWriter

_PIECE_BYTES = 1 << 20
_LOOK_EVERY_BYTES = 64 << 20
FREE_BYTES_MIN = 256 << 20
"""What uploads leave free on a disk that others write to as well."""


async def receive(
    body: StreamReader,
    writer: SpoolWriter,
    *,
    announced_bytes: int,
    limit_bytes: int,
    where: str,
) -> SpooledFile:
    """Writes a body to a file.

    Args:
        body: the request's content.
        writer: the file; removed where this fails.
        announced_bytes: what the request says it holds; 0 where it does not.
        limit_bytes: a longer body is refused.
        where: what to call it in errors.

    Raises:
        FlowMeshError: it is too long.
        StoreFullError: the disk has no room for it.
        StoreUnavailableError: the disk failed.
    """
    with writer:
        await _require_room(writer.path, announced_bytes)
        held = bytearray()
        looked = 0
        async for piece in body.iter_any():
            held += piece
            if max(announced_bytes, writer.size_bytes + len(held)) > limit_bytes:
                raise _too_long(limit_bytes, where)
            if len(held) >= _PIECE_BYTES:
                await asyncio.to_thread(writer.write, held)
                held = bytearray()
            if writer.size_bytes - looked >= _LOOK_EVERY_BYTES:
                looked = writer.size_bytes
                await _require_room(writer.path, announced_bytes - looked)
        await asyncio.to_thread(writer.write, held)
        return await asyncio.to_thread(writer.finish)


async def _require_room(path: Path, wanted_bytes: int) -> None:
    usage = await asyncio.to_thread(shutil.disk_usage, path.parent)
    if usage.free - FREE_BYTES_MIN < max(0, wanted_bytes):
        raise StoreFullError(
            f"the disk that uploads are received on has {usage.free >> 20} MiB free",
            where=str(path.parent),
            remedy="free space there, or name the content by s3:// instead",
        )


def _too_long(limit_bytes: int, where: str) -> FlowMeshError:
    return FlowMeshError(
        f"the upload is larger than {limit_bytes:,} bytes",
        where=where,
        remedy="put it into a bucket and name it by s3://",
    )
