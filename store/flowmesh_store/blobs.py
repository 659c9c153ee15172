"""What every backend gives: blobs in memory, in files and from the spool, and how they are told."""

from typing import Protocol

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.ports import BlobFiles, BlobStore
from flowmesh_store.spool import SpoolingBlobs

DEFAULT_GRACE_S = 24 * 3600.0
"""How long a blob that nobody names yet is safe from collection, in seconds."""


class Blobs(BlobStore, BlobFiles, SpoolingBlobs, Protocol):
    """The blobs of a store: the three ports in one object. Decorators take one and are one."""


class CorruptBlobDeleter(Protocol):
    """Blobs that can forget one that is corrupt, so that the next ``put`` stores it anew."""

    async def discard(self, digest: Digest) -> None:
        """Reads the blob again and drops it if its content is not what its digest says."""
        ...


def not_found(digest: Digest, where: str) -> BlobNotFoundError:
    """The error for a blob that is not there."""
    return BlobNotFoundError(
        f"there is no blob {digest}",
        digest=digest,
        where=where,
        remedy="run again what produced it; a lost blob that is still needed is repaired so",
    )
