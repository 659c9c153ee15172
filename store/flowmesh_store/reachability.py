"""A look at a store: whether this process can read it, whatever is in it. Workers look often."""

import asyncio
import os
from urllib.parse import unquote, urlsplit

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import Store

_SCOPE = "reachable"
_NOTHING = digest_of(b"")


async def look_at(store: Store) -> None:
    """Asks the store for one small blob, which need not be there.

    Raises:
        StoreError: the store refuses, does not answer, or its directory is gone.
    """
    parts = urlsplit(store.url)
    if parts.scheme == "file" and not await asyncio.to_thread(os.path.isdir, unquote(parts.path)):
        raise StoreUnavailableError(
            "the directory is gone", where=store.url, remedy="mount it again, or restore it"
        )
    await store.view(write=_SCOPE, read=[_SCOPE]).missing([_NOTHING])
