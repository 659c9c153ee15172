"""The complete ports of blob stores: the area of one scope, and views over several.

A blob lies in the *blob area* of a scope. Backends implement an area; everything outside this
package reads and writes through a view (``Store.view``), which says the scopes.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.ports import BlobFiles, BlobStore
from flowmesh_store.spool import SpoolingBlobs

DEFAULT_GRACE_S = 24 * 3600.0
"""How long an unreferenced blob is safe from collection, in seconds."""


class Blobs(BlobStore, BlobFiles, SpoolingBlobs, Protocol):
    """Blobs that are read, put and spooled, wherever they lie."""


class BlobArea(Blobs, Protocol):
    """The blobs of one scope; backends and their decorators implement it."""

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """Copies a blob from another scope, without moving its bytes through this process.

        Returns:
            Whether that scope has it; False copies nothing.

        Raises:
            StoreFullError, StoreUnavailableError: it was not copied.
        """
        ...


class BlobView(Blobs, Protocol):
    """Blobs that are written to one scope and read from several."""

    async def copy(self, digests: Iterable[Digest]) -> set[Digest]:
        """Copies blobs that the write scope lacks from the read scopes.

        Returns:
            Those that none of the scopes has.

        Raises:
            StoreFullError, StoreUnavailableError: not all were copied.
        """
        ...


class BlobViews(Protocol):
    """A store, as code sees its blobs."""

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> BlobView:
        """Returns the blobs that an action, a run or a user may see.

        Args:
            write: the scope that new blobs belong to.
            read: the scopes that are read, in this order.
            token: the attempt's, which says the same scopes; the blob service asks for it, and
                stores that this process has the credentials of ignore it.

        Raises:
            StoreError: a scope is malformed.
        """
        ...


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
