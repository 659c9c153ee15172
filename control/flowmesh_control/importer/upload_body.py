"""Receives the bodies of uploads into files, so that none is kept in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import StreamReader

from flowmesh_core.errors import FlowMeshError
from flowmesh_store.disk_space import require_space
from flowmesh_store.spool import SpooledFile, SpoolWriter

_PIECE_BYTES = 1 << 20
_CHECK_EVERY_BYTES = 64 << 20
_REMEDY = "free space there, or name the content by an s3:// address instead"


async def receive(
    body: StreamReader,
    writer: SpoolWriter,
    *,
    announced_bytes: int,
    limit_bytes: int,
    where: str,
    count: Callable[[int], None],
) -> SpooledFile:
    """Writes a body to a file.

    Args:
        body: the request's content.
        writer: the file; removed where this fails.
        announced_bytes: the request's Content-Length; 0 without one.
        limit_bytes: a longer body is refused.
        where: its name in errors.
        count: called with the size of each part that comes; it may refuse the rest.

    Raises:
        FlowMeshError: it is too long, or ``count`` refused it.
        StoreFullError: the disk has no space for it.
        StoreUnavailableError: the disk failed.
    """
    with writer:
        await _require_space(writer.path, announced_bytes)
        buffer = bytearray()
        checked = 0
        async for piece in body.iter_any():
            buffer += piece
            count(len(piece))
            if max(announced_bytes, writer.size_bytes + len(buffer)) > limit_bytes:
                raise _too_long(limit_bytes, where)
            if len(buffer) >= _PIECE_BYTES:
                await asyncio.to_thread(writer.write, buffer)
                buffer = bytearray()
            if writer.size_bytes - checked >= _CHECK_EVERY_BYTES:
                checked = writer.size_bytes
                await _require_space(writer.path, announced_bytes - checked)
        await asyncio.to_thread(writer.write, buffer)
        return await asyncio.to_thread(writer.finish)


async def _require_space(path: Path, wanted_bytes: int) -> None:
    await require_space(path.parent, wanted_bytes, purpose="uploads", remedy=_REMEDY)


def _too_long(limit_bytes: int, where: str) -> FlowMeshError:
    return FlowMeshError(
        f"the upload is larger than {limit_bytes:,} bytes",
        where=where,
        remedy="put it into a bucket and name it by an s3:// address",
    )
