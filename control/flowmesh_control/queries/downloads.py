"""Downloads of artifacts: rows as JSON Lines, directories as tar, others unchanged."""

import asyncio
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson

from flowmesh_core.dataset import ChunkRef, Manifest, Schema, decode_manifest_of
from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.protocol.results import Artifact, require_identity
from flowmesh_core.units import Digest
from flowmesh_store.blobs import Blobs
from flowmesh_store.disk_space import require_space
from flowmesh_store.tree import read_tree_of

T = TypeVar("T")
_BLOCK = tarfile.BLOCKSIZE
_PIECE_BYTES = 1 << 20
_READ_ON_LOOP = 64 << 10
"""Chunks of more bytes and values are decoded in a thread, beside which others are served."""


@dataclass(frozen=True, slots=True)
class Download:
    """A stream of bytes and its media type."""

    media_type: str
    pieces: AsyncIterator[bytes]


def download_of(blobs: Blobs, artifacts: Sequence[Artifact]) -> Download:
    """Returns the content of an output; several artifacts are concatenated.

    Iterating over it may raise BlobNotFoundError, BlobCorruptError or StoreUnavailableError.
    """
    kind = artifacts[0].kind
    if kind == "dataset":
        return Download("application/x-ndjson", _rows(blobs, artifacts))
    if kind in ("model", "adapter"):
        return Download("application/x-tar", _tar(blobs, artifacts[0]))
    if kind == "metrics":
        return Download("application/json", _metrics(blobs, artifacts))
    return Download("application/octet-stream", _bytes(blobs, artifacts))


async def manifest_of(blobs: Blobs, artifact: Artifact) -> Manifest:
    """Returns a data set's manifest, from the store where the artifact does not include it.

    Raises:
        IdentityMismatchError: the store's is not the manifest of this data set.
    """
    if artifact.manifest is not None:
        return artifact.manifest
    return decode_manifest_of(await blobs.get(artifact.blob), artifact.digest, artifact.blob)


async def read_beside_others(
    read: Callable[[bytes, Schema, ChunkRef], T], data: bytes, schema: Schema, chunk: ChunkRef
) -> T:
    """Returns what is read of a chunk: in a thread, unless it is small."""
    if chunk.count * len(schema.columns) + len(data) <= _READ_ON_LOOP:
        return read(data, schema, chunk)
    return await asyncio.to_thread(read, data, schema, chunk)


async def _rows(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    # Imported here: pyarrow is heavy, and only downloads need it.
    from flowmesh_store.datasets import (  # noqa: PLC0415
        read_verified_rows,
        rows_to_jsonl,
    )

    for artifact in artifacts:
        manifest = await manifest_of(blobs, artifact)
        for chunk in manifest.chunks:
            data = await blobs.get(chunk.blob)
            yield await read_beside_others(
                lambda *read: rows_to_jsonl(read_verified_rows(*read)), data, manifest.schema, chunk
            )


async def _metrics(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    for artifact in artifacts:
        value = artifact.value
        require_identity(artifact, None if value is None else canonical_bytes(value))
        data = await blobs.get(artifact.blob) if value is None else orjson.dumps(value)
        yield data + b"\n"


async def _bytes(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    for artifact in artifacts:
        require_identity(artifact)
        async for piece in pieces_of(blobs, artifact.blob, artifact.size_bytes):
            yield piece


async def _tar(blobs: Blobs, artifact: Artifact) -> AsyncIterator[bytes]:
    tree = await read_tree_of(blobs, artifact.blob, artifact.kind, artifact.digest)
    for file in tree.files:
        info = tarfile.TarInfo(file.path)
        info.size = file.bytes
        info.mode = file.mode or 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        # Of another size, a reader would take the rest of it for further files.
        async for piece in pieces_of(blobs, file.digest, file.bytes, is_exact=True):
            yield piece
        yield b"\0" * (-file.bytes % _BLOCK)
    yield b"\0" * (2 * _BLOCK)


async def pieces_of(
    blobs: Blobs, digest: Digest, size_bytes: int, *, is_exact: bool = False
) -> AsyncIterator[bytes]:
    """Yields a blob, which may be larger than memory, in pieces from a temporary copy on disk.

    Args:
        blobs: that have it.
        digest: of the blob.
        size_bytes: as far as it is known, for which the disk has to have space.
        is_exact: whether it must have this size.
    """
    with tempfile.TemporaryDirectory(prefix="flowmesh-download-") as folder:
        await require_space(Path(folder), size_bytes)
        path = Path(folder, "content")
        found_bytes = await blobs.fetch(digest, path)
        if is_exact and found_bytes != size_bytes:
            raise BlobCorruptError(
                f"it has {found_bytes} bytes: its manifest says {size_bytes}", where=f"cas/{digest}"
            )
        for offset in range(0, found_bytes, _PIECE_BYTES):
            yield await asyncio.to_thread(_piece_at, path, offset)


def _piece_at(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_PIECE_BYTES)
