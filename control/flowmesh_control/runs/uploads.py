"""Stores uploaded rows and directories, and resolves references to stored content.

Called by the API's handlers and by admission.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from flowmesh_control.importer.decoder import UploadDecoder
from flowmesh_control.importer.frames import DatasetDecoded
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
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
from flowmesh_core.identity import content_identity, digest_bytes, tree_identity
from flowmesh_core.protocol.results import Artifact, content_artifact
from flowmesh_core.sharing import Reference, ScopePlan
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobView, BlobViews
from flowmesh_store.spool import SpooledFile
from flowmesh_store.tree import Tree, read_tree, store_tree

_TREES = ("model", "adapter")


class StoredContent(msgspec.Struct, frozen=True):
    """Content that was stored for a namespace; ``columns`` are those of a data set."""

    reference: str
    artifact: Artifact
    columns: tuple[str, ...] = ()


class UploadStore:
    """Stores uploads; issues and verifies references."""

    def __init__(
        self,
        store: BlobViews,
        references: ReferenceIssuer,
        revocations: Revocations,
        stored: Callable[[str, int], None] = lambda scope, size_bytes: None,
    ) -> None:
        """Keeps its parts.

        Args:
            store: has the blobs.
            references: issues and verifies references.
            revocations: end for content that is stored again.
            stored: called with the scope and the size of content that was stored.
        """
        self._store = store
        self._references = references
        self._revocations = revocations
        self._decoder = UploadDecoder(store)
        self._stored = stored

    async def put_rows(self, rows: Sequence[Mapping[str, Any]], scope: str) -> StoredContent:
        """Stores rows, JSON-like objects, as a dataset.

        Raises:
            IdentityError: the rows have mixed types; names row and column.
            StoreError: they could not be stored.
        """
        return await self._of_dataset(await self._decoder.of_rows(rows, scope=scope), scope)

    async def put_file(self, name: str, data: bytes, scope: str) -> StoredContent:
        """Stores a small file of rows, as :meth:`put_upload` does."""
        with self._store.view(write=scope, read=()).spool() as writer:
            writer.write(data)
            spooled = writer.finish()
        return await self.put_upload(name, spooled, scope)

    async def put_upload(self, name: str, file: SpooledFile, scope: str) -> StoredContent:
        """Stores a file of rows (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``).

        Args:
            name: the user's file name; its suffix gives the format.
            file: the content, which is removed.
            scope: where it is stored, and the reference is valid.

        Raises:
            IdentityError: the file is not of its format; names the line.
            ContentLimitError: it is larger than the limits for uploads.
            StoreError: it could not be stored.
        """
        try:
            decoded = await self._decoder.of_file(name, file, scope=scope)
            return await self._of_dataset(decoded, scope)
        finally:
            file.discard()

    async def _of_dataset(self, found: DatasetDecoded, scope: str) -> StoredContent:
        artifact = Artifact(
            "dataset",
            found.digest,
            found.manifest,
            size_bytes=found.size_bytes,
            rows=found.rows,
        )
        self._stored(scope, found.size_bytes)
        await self._revocations.consent(artifact.digest, scope)
        return StoredContent(self.reference(scope, artifact), artifact, found.columns)

    async def put_directory(self, kind: str, directory: Path, scope: str) -> StoredContent:
        """Stores a model or adapter directory as a tree."""
        stored = await store_tree(self._store.view(write=scope, read=(scope,)), directory)
        artifact = _tree_artifact(kind, stored)
        self._stored(scope, artifact.size_bytes)
        await self._revocations.consent(artifact.digest, scope)
        return StoredContent(self.reference(scope, artifact), artifact)

    def reference(self, scope: str, artifact: Artifact) -> str:
        """Returns a reference by which users of a scope may use this content."""
        return self._references.issue(scope, artifact.kind, artifact.blob)

    def verified(self, reference: str, *plans: ScopePlan) -> Reference:
        """Verifies a reference for one of several namespaces, and returns its parts.

        Args:
            reference: what the user wrote.
            plans: the scopes of each namespace.

        Raises:
            InvalidReferenceError: it is malformed, or valid for none of them.
        """
        return self._references.verify(reference, plans)

    async def load(self, kind: str, reference: str, scopes: ScopePlan) -> Artifact:
        """Returns the artifact of a reference, which must have been issued as this kind.

        Args:
            kind: what the workflow uses it as.
            reference: what the user wrote.
            scopes: of the user's namespace.

        Raises:
            InvalidReferenceError: it is not valid in these scopes or of another kind, or its
                content is missing, damaged or revoked.
        """
        named = self.verified(reference, scopes)
        if named.kind != kind:
            raise InvalidReferenceError(
                f"the reference is of kind {named.kind}; expected one of kind {kind}",
                where=reference[:20],
                remedy="`fmesh outputs` shows the kind of each output",
            )
        try:
            artifact = await _load(self._content(scopes), kind, named.blob)
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
        await self.check_revoked(artifact, scopes)
        return artifact

    async def check_revoked(self, artifact: Artifact, scopes: ScopePlan) -> None:
        """Refuses an artifact whose content is revoked for a namespace.

        Raises:
            InvalidReferenceError: it is revoked, and nobody has stored or made it again since.
        """
        await self._revocations.check(artifact.digest, scopes.private)

    async def identity_of(self, named: Reference, *plans: ScopePlan) -> Digest:
        """Returns the identity of a reference's content.

        If none of these namespaces can read its manifest, returns the digest in the reference.
        """
        if named.kind not in (*_TREES, "dataset"):
            return content_identity(named.kind, named.blob)
        if not plans:
            return named.blob
        blobs = self._content(*plans)
        with contextlib.suppress(IdentityError, LostBlobError, _NotATreeError):
            if named.kind == "dataset":
                return dataset_digest(decode_manifest(await blobs.get(named.blob)))
            return tree_identity(named.kind, (await _tree(blobs, named.blob)).files)
        return named.blob

    def _content(self, *plans: ScopePlan) -> BlobView:
        """Returns what several namespaces may read, in the order of the namespaces."""
        read = tuple(dict.fromkeys(scope for plan in plans for scope in plan.readable))
        return self._store.view(write=read[0], read=read)


async def _load(blobs: BlobView, kind: str, digest: Digest) -> Artifact:
    if kind == "dataset":
        return dataset_artifact(decode_manifest(await blobs.get(digest)))
    if kind in _TREES:
        return _tree_artifact(kind, await _tree(blobs, digest))
    if await blobs.missing([digest]):
        raise BlobNotFoundError("it is missing", where=f"cas/{digest}")
    if kind == "metrics":
        data = await blobs.get(digest)
        return content_artifact(kind, digest, len(data), orjson.loads(data))
    return content_artifact(kind, digest)


async def _tree(blobs: BlobView, digest: Digest) -> Tree:
    try:
        return await read_tree(blobs, digest)
    except (BlobNotFoundError, BlobCorruptError, StoreUnavailableError):
        raise
    except StoreError as e:
        raise _NotATreeError(e.message) from e


class _NotATreeError(Exception):
    """The bytes are not a tree manifest."""


def _tree_artifact(kind: str, tree: Tree) -> Artifact:
    return Artifact(kind, tree_identity(kind, tree.files), tree.digest, tree.size_bytes)


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
