"""Downloads of artifacts: rows as JSON Lines, directories as tar, others unchanged."""

import tarfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import orjson

from flowmesh_core.dataset import Manifest, decode_manifest
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.blobs import Blobs
from flowmesh_store.tree import read_tree

_BLOCK = tarfile.BLOCKSIZE


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
    """Returns a data set's manifest, from the store where the artifact does not include it."""
    if artifact.manifest is not None:
        return artifact.manifest
    return decode_manifest(await blobs.get(artifact.blob))


async def _rows(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    # Imported here: pyarrow is heavy, and only downloads need it.
    from flowmesh_store.datasets import read_chunk, rows_to_jsonl  # noqa: PLC0415

    for artifact in artifacts:
        manifest = await manifest_of(blobs, artifact)
        for chunk in manifest.chunks:
            data = await blobs.get(chunk.blob)
            yield rows_to_jsonl(read_chunk(data, manifest.schema))


async def _metrics(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    for artifact in artifacts:
        value = artifact.value
        data = await blobs.get(artifact.blob) if value is None else orjson.dumps(value)
        yield data + b"\n"


async def _bytes(blobs: Blobs, artifacts: Sequence[Artifact]) -> AsyncIterator[bytes]:
    for artifact in artifacts:
        yield await blobs.get(artifact.blob)


async def _tar(blobs: Blobs, artifact: Artifact) -> AsyncIterator[bytes]:
    tree = await read_tree(blobs, artifact.blob)
    tree.require(artifact.kind, artifact.digest)
    for file in tree.files:
        info = tarfile.TarInfo(file.path)
        info.size = file.bytes
        info.mode = file.mode or 0o644
        yield info.tobuf(tarfile.PAX_FORMAT)
        data = await blobs.get(file.digest)
        yield data + b"\0" * (-len(data) % _BLOCK)
    yield b"\0" * (2 * _BLOCK)
