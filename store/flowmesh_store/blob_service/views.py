"""Opens the blobs of a bucket through the blob service; called by workers of a cluster."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from flowmesh_core.errors import StoreError
from flowmesh_store.blob_service.access import SignedAccess
from flowmesh_store.blob_service.blobs import ServiceBlobs
from flowmesh_store.blob_service.client import BlobServiceClient
from flowmesh_store.scoped_blobs import ScopedBlobs
from flowmesh_store.signed_objects import SignedObjects
from flowmesh_store.verified_blobs import VerifyingBlobs

_CONNECTIONS = 64
_TIMES = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=60.0)


class BlobServiceViews:
    """Implements :class:`BlobViews`; a view needs the token of an attempt."""

    def __init__(self, access: SignedAccess, *, spool_dir: Path | None = None) -> None:
        """Keeps the arguments.

        Args:
            access: to service and server.
            spool_dir: where outputs are spooled; by default the system's temporary directory.
        """
        self._access = access
        self._spool_dir = spool_dir

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> ScopedBlobs:
        """As :meth:`BlobViews.view`; every read is verified."""
        if not token:
            raise StoreError(
                "the control plane sent no token, which the blob service asks for",
                where=self._access.service.url,
                remedy="use workers and control plane of one release",
            )

        def area(scope: str) -> VerifyingBlobs:
            blobs = ServiceBlobs(self._access, scope, token, spool_dir=self._spool_dir)
            return VerifyingBlobs(blobs, blobs)

        return ScopedBlobs(area, write, read)

    async def look(self) -> None:
        """Asks the service for a URL, and the bucket's server whether it accepts it.

        Raises:
            StoreError: one of them refuses, or does not answer.
        """
        await self._access.objects.size(await self._access.service.probe_url())


def is_blob_service(url: str) -> bool:
    """Whether the address of a store is that of a blob service."""
    return url.startswith(("https://", "http://"))


@asynccontextmanager
async def open_blob_service(
    url: str,
    *,
    authority: Path | None = None,
    store_authority: Path | None = None,
    spool_dir: Path | None = None,
) -> AsyncIterator[BlobServiceViews]:
    """Yields views of the blobs behind a blob service; their connections end with the block.

    Args:
        url: ``https://host:port`` of the service.
        authority: PEM certificates to trust for it; None for the system's.
        store_authority: those to trust for the bucket's server; None for the system's.
        spool_dir: where outputs are spooled.
    """
    connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMES) as http:
        objects = SignedObjects(http, store_authority)
        access = SignedAccess(BlobServiceClient(http, url, authority), objects)
        yield BlobServiceViews(access, spool_dir=spool_dir)
