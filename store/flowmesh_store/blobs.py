"""The complete port of a blob store, which every backend and decorator implements."""

from typing import Protocol

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.ports import BlobFiles, BlobStore
from flowmesh_store.spool import SpoolingBlobs

DEFAULT_GRACE_S = 24 * 3600.0
"""How long an unreferenced blob is safe from collection, in seconds."""


class Blobs(BlobStore, BlobFiles, SpoolingBlobs, Protocol):
    """The blobs of a store; decorators wrap one and implement it too."""


class CorruptBlobDeleter(Protocol):
    """Deletes corrupt blobs, so that the next ``put`` stores them again."""

    async def discard(self, digest: Digest) -> None:
        """Reads the blob again, and deletes it if its content has another digest."""
        ...


def not_found(digest: Digest, where: str) -> BlobNotFoundError:
    """Returns the error for a missing blob."""
    return BlobNotFoundError(
        f"there is no blob {digest}",
        digest=digest,
        where=where,
        remedy="run again what produced it; a lost blob that is still needed is repaired so",
    )
