"""Stores uploaded rows and directories, and resolves references to stored content.

Called by the API's handlers and by admission.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from flowmesh_control.importer.decoder import UploadDecoder
from flowmesh_control.importer.frames import DatasetDecoded
from flowmesh_core.dataset import dataset_digest, decode_manifest, encode_manifest
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.errors import (
    BlobCorruptError,
    BlobNotFoundError,
    IdentityError,
    InvalidReferenceError,
    LostBlobError,
    StoreError,
    StoreUnavailableError,
)
from flowmesh_core.identity import digest_bytes
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import Reference, ScopePlan, issue, verify
from flowmesh_core.units import Digest
from flowmesh_store.blobs import Blobs
from flowmesh_store.spool import SpooledFile
from flowmesh_store.tree import Tree, read_tree, store_tree


class StoredContent(msgspec.Struct, frozen=True):
    """Content that was stored for a namespace; ``columns`` are those of a data set."""

    reference: str
    artifact: Artifact
    columns: tuple[str, ...] = ()


class UploadStore:
    """Stores uploads; issues and verifies references."""

    def __init__(self, blobs: Blobs, master_key: bytes) -> None:
        self._blobs = blobs
        self._master_key = master_key
        self._decoder = UploadDecoder(blobs)

    async def put_rows(self, rows: Sequence[Mapping[str, Any]], scope: str) -> StoredContent:
        """Stores rows, JSON-like objects, as a dataset.

        Raises:
            IdentityError: the rows have mixed types; names row and column.
            StoreError: they could not be stored.
        """
        return self._of_dataset(await self._decoder.of_rows(rows, tenant=scope), scope)

    async def put_file(self, name: str, data: bytes, scope: str) -> StoredContent:
        """Stores a small file of rows, as :meth:`put_upload` does."""
        with self._blobs.spool() as writer:
            writer.write(data)
            spooled = writer.finish()
        return await self.put_upload(name, spooled, scope)

    async def put_upload(self, name: str, file: SpooledFile, scope: str) -> StoredContent:
        """Stores a file of rows (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``).

        Args:
            name: the user's file name; its suffix gives the format.
            file: the content, which is removed.
            scope: where the reference is valid.

        Raises:
            IdentityError: the file is not of its format; names the line.
            ContentLimitError: it is larger than the limits for uploads.
            StoreError: it could not be stored.
        """
        try:
            return self._of_dataset(await self._decoder.of_file(name, file, tenant=scope), scope)
        finally:
            file.discard()

    def _of_dataset(self, found: DatasetDecoded, scope: str) -> StoredContent:
        artifact = Artifact(
            "dataset",
            found.digest,
            found.manifest,
            size_bytes=found.size_bytes,
            rows=found.rows,
        )
        return StoredContent(self.reference(scope, artifact), artifact, found.columns)

    async def put_directory(self, kind: str, directory: Path, scope: str) -> StoredContent:
        """Stores a model or adapter directory as a tree."""
        stored = await store_tree(self._blobs, directory)
        artifact = Artifact(kind, stored.digest, stored.digest, stored.size_bytes)
        return StoredContent(self.reference(scope, artifact), artifact)

    def reference(self, scope: str, artifact: Artifact) -> str:
        """Returns a reference by which users of a scope may use this content."""
        return self.issued(scope, artifact.kind, artifact.blob)

    def issued(self, scope: str, kind: str, digest: Digest) -> str:
        """Returns a reference by which users of a scope may use the blob of a digest."""
        return issue(self._master_key, scope, kind, digest)

    def verified(self, reference: str, *plans: ScopePlan) -> Reference:
        """Verifies a reference for one of several namespaces, and returns its parts.

        Args:
            reference: what the user wrote.
            plans: the scopes of each namespace.

        Raises:
            InvalidReferenceError: it is malformed, of an older release, or valid for none of them.
        """
        allowed = dict.fromkeys(scope for p in plans for scope in (*p.lookup, p.publish, p.private))
        return verify(self._master_key, allowed, reference)

    async def load(self, kind: str, reference: str, scopes: ScopePlan) -> Artifact:
        """Returns the artifact of a reference, which must have been issued as this kind.

        Args:
            kind: what the workflow uses it as.
            reference: what the user wrote.
            scopes: of the user's namespace.

        Raises:
            InvalidReferenceError: it is not valid in these scopes or of another kind, or its
                content is missing or damaged.
        """
        named = self.verified(reference, scopes)
        if named.kind != kind:
            raise InvalidReferenceError(
                f"the reference is of kind {named.kind}; expected one of kind {kind}",
                where=reference[:20],
                remedy="`fmesh outputs` shows the kind of each output",
            )
        try:
            return await self._load(kind, named.digest)
        except LostBlobError as e:
            is_missing = isinstance(e, BlobNotFoundError)
            raise InvalidReferenceError(
                f"its content is {'no longer' if is_missing else 'damaged'} in the store",
                where=reference[:20],
                remedy="upload it again, or repeat the run that produced it",
            ) from e
        except (IdentityError, _NotATreeError, orjson.JSONDecodeError) as e:
            raise InvalidReferenceError(
                f"its content is not of kind {kind}",
                where=reference[:20],
                remedy="upload it again, or repeat the run that produced it",
            ) from e

    async def identity_of(self, named: Reference) -> Digest:
        """Returns the identity of a verified reference's content: of a data set, its rows' digest.

        If the content cannot be read, returns the digest in the reference.
        """
        if named.kind == "dataset":
            with contextlib.suppress(IdentityError, LostBlobError):
                return dataset_digest(decode_manifest(await self._blobs.get(named.digest)))
        return named.digest

    async def _load(self, kind: str, digest: Digest) -> Artifact:
        if kind == "dataset":
            return dataset_artifact(decode_manifest(await self._blobs.get(digest)))
        if kind in ("model", "adapter"):
            tree = await self._tree(digest)
            return Artifact(kind, digest, digest, tree.size_bytes)
        if await self._blobs.missing([digest]):
            raise BlobNotFoundError("it is missing", where=f"cas/{digest}")
        if kind == "metrics":
            data = await self._blobs.get(digest)
            return Artifact(kind, digest, digest, len(data), value=orjson.loads(data))
        return Artifact(kind, digest, digest)

    async def _tree(self, digest: Digest) -> Tree:
        try:
            return await read_tree(self._blobs, digest)
        except (BlobNotFoundError, BlobCorruptError, StoreUnavailableError):
            raise
        except StoreError as e:
            raise _NotATreeError(e.message) from e


class _NotATreeError(Exception):
    """The bytes are not a tree manifest."""


def dataset_artifact(manifest: Manifest) -> Artifact:
    """Returns a data set as an artifact that includes its manifest."""
    encoded = encode_manifest(manifest)
    return Artifact(
        "dataset",
        dataset_digest(manifest),
        digest_bytes(encoded),
        size_bytes=manifest.blob_bytes,
        rows=manifest.row_count,
        manifest=manifest,
    )
