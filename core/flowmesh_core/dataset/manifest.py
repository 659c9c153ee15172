"""Manifests: the content of a data set, without its rows.

A chunk has two digests: ``rows`` of the content of its rows, which is its identity, and ``blob`` of
the Parquet file, which also contains its writer's version and so is only transport.
"""

from collections.abc import Sequence

import msgspec

from flowmesh_core.dataset.schema import Schema, merge_schemas
from flowmesh_core.decoding import decode
from flowmesh_core.errors import IdentityError, IdentityMismatchError
from flowmesh_core.identity.digest import digest_value
from flowmesh_core.units import Digest

FORMAT = 1


class ChunkRef(msgspec.Struct, frozen=True):
    """A chunk of rows.

    Attributes:
        rows: the digest of the rows; the identity.
        blob: the digest of the Parquet file in ``cas/``.
        count: how many rows.
        bytes: the size of the Parquet file.
    """

    rows: Digest
    blob: Digest
    count: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """A data set: its schema and its chunks in the order of their rows."""

    schema: Schema
    chunks: tuple[ChunkRef, ...] = ()
    format: int = FORMAT

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(c.count for c in self.chunks)

    @property
    def blob_bytes(self) -> int:
        """The size of the Parquet files, in bytes."""
        return sum(c.bytes for c in self.chunks)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    """Returns a manifest as JSON, the same bytes for the same manifest."""
    return _encoder.encode(manifest)


def decode_manifest(data: bytes) -> Manifest:
    """Reads a manifest.

    Raises:
        IdentityError: the bytes are not a manifest of this format.
    """
    try:
        manifest = decode(_decoder, data)
    except msgspec.DecodeError as e:
        raise IdentityError(f"not a dataset manifest: {e}") from e
    if manifest.format != FORMAT:
        raise IdentityError(
            f"a dataset manifest of format {manifest.format}; this release reads {FORMAT}",
            remedy="use the release that wrote it, or import the data again",
        )
    return manifest


def dataset_digest(manifest: Manifest) -> Digest:
    """Returns the identity of a data set: its schema and its chunks' row digests in order."""
    columns = [[c.name, c.type.value] for c in manifest.schema.columns]
    return digest_value("dataset", [columns, [c.rows for c in manifest.chunks]])


def decode_manifest_of(data: bytes, identity: Digest, blob: Digest) -> Manifest:
    """Reads the manifest of a data set, and refuses one of another data set.

    Args:
        data: the manifest's bytes.
        identity: of the data set that the reader expects.
        blob: the digest of the bytes, for the error.

    Raises:
        IdentityMismatchError: it is not the manifest of this data set.
    """
    try:
        manifest = decode_manifest(data)
    except IdentityError as e:
        raise IdentityMismatchError(f"the content is {e.message}", blob) from e
    if dataset_digest(manifest) != identity:
        raise IdentityMismatchError(
            f"the manifest is not that of the data set with the identity {identity}", blob
        )
    return manifest


def concat(manifests: Sequence[Manifest]) -> Manifest:
    """Returns the manifest of data sets one after the other; no row is read.

    Chunks without rows are dropped, and a data set without columns and rows agrees with any, so
    that the result does not depend on empty parts.

    Raises:
        IdentityError: the columns differ.
    """
    schema = merge_schemas(m.schema for m in manifests if m.schema.columns or m.row_count)
    chunks = tuple(c for m in manifests for c in m.chunks if c.count)
    return Manifest(schema, chunks)
