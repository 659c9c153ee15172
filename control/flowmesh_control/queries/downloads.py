"""Downloads of artifacts: rows as JSON Lines or Arrow, directories as tar, others unchanged."""

import asyncio
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import orjson

from flowmesh_api.v1.operation import ARROW_STREAM, BYTES, JSON, JSON_LINES, TAR
from flowmesh_core.dataset import ChunkRef, Manifest, Schema, concat, decode_manifest_of
from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.protocol.results import Artifact, require_identity
from flowmesh_core.units import Digest
from flowmesh_store.blobs import Blobs
from flowmesh_store.disk_space import require_space
from flowmesh_store.tree import read_tree_of

T = TypeVar("T")
ALL_ROWS = sys.maxsize
_BLOCK = tarfile.BLOCKSIZE
_PIECE_BYTES = 1 << 20
_READ_ON_LOOP = 64 << 10
"""Chunks of more bytes and values are decoded in a thread, beside which others are served."""


@dataclass(frozen=True, slots=True)
class Download:
    """A stream of bytes and its media type."""

    media_type: str
    pieces: AsyncIterator[bytes]


def download_of(
    blobs: Blobs,
    artifacts: Sequence[Artifact],
    *,
    rows_max: int = ALL_ROWS,
    as_arrow: bool = False,
) -> Download:
    """Returns the content of an output; several artifacts are concatenated.

    Iterating over it may raise BlobNotFoundError, BlobCorruptError or StoreUnavailableError, and
    IdentityError where data sets have other columns than those before and are read as Arrow.

    Args:
        blobs: that have it.
        artifacts: those of the output; none is a data set without rows.
        rows_max: of data sets, how many rows to read, from the first on.
        as_arrow: whether rows are an Arrow stream in place of JSON Lines.
    """
    kind = artifacts[0].kind if artifacts else "dataset"
    if kind == "dataset" and as_arrow:
        return Download(ARROW_STREAM, _arrow(blobs, artifacts, rows_max))
    if kind == "dataset":
        return Download(JSON_LINES, _rows(blobs, artifacts, rows_max))
    if kind in ("model", "adapter"):
        return Download(TAR, _tar(blobs, artifacts[0]))
    if kind == "metrics":
        return Download(JSON, _metrics(blobs, artifacts))
    return Download(BYTES, _bytes(blobs, artifacts))


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


async def _rows(blobs: Blobs, artifacts: Sequence[Artifact], rows_max: int) -> AsyncIterator[bytes]:
    # Imported here: pyarrow is heavy, and only downloads need it.
    from flowmesh_store.datasets import (  # noqa: PLC0415
        read_verified_rows,
        rows_to_jsonl,
    )

    def lines(count: int) -> Callable[[bytes, Schema, ChunkRef], bytes]:
        return lambda *chunk: rows_to_jsonl(read_verified_rows(*chunk)[:count])

    async for schema, chunk, count in _chunks(blobs, artifacts, rows_max):
        data = await blobs.get(chunk.blob)
        yield await read_beside_others(lines(count), data, schema, chunk)


async def _arrow(
    blobs: Blobs, artifacts: Sequence[Artifact], rows_max: int
) -> AsyncIterator[bytes]:
    from flowmesh_store.datasets import read_verified_table  # noqa: PLC0415 - as above
    from flowmesh_store.datasets.arrow_stream import ArrowStream  # noqa: PLC0415

    manifests = [await manifest_of(blobs, artifact) for artifact in artifacts]
    schema = concat(manifests).schema
    stream = ArrowStream(schema)

    def batch(count: int) -> Callable[[bytes, Schema, ChunkRef], bytes]:
        return lambda *chunk: stream.add(read_verified_table(*chunk).slice(0, count))

    known = [
        msgspec.structs.replace(a, manifest=m) for a, m in zip(artifacts, manifests, strict=True)
    ]
    async for _, chunk, count in _chunks(blobs, known, rows_max):
        data = await blobs.get(chunk.blob)
        yield await read_beside_others(batch(count), data, schema, chunk)
    yield stream.end()


async def _chunks(
    blobs: Blobs, artifacts: Sequence[Artifact], rows_max: int
) -> AsyncIterator[tuple[Schema, ChunkRef, int]]:
    """Yields the chunks that have the first rows, each with how many of its rows these are."""
    left = rows_max
    for artifact in artifacts:
        if not left:
            return
        manifest = await manifest_of(blobs, artifact)
        for chunk in manifest.chunks:
            count = min(left, chunk.count)
            left -= count
            if count:
                yield manifest.schema, chunk, count


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
        # Of another size, a reader would take the rest of it for further files. The header waits
        # for the content, so that an output whose first file is lost is refused.
        pieces = pieces_of(blobs, file.digest, file.bytes, is_exact=True)
        yield info.tobuf(tarfile.PAX_FORMAT) + await anext(pieces, b"")
        async for piece in pieces:
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
