"""How a worker reads and puts objects: with a URL of the blob service for each request."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_store.blob_service.client import BlobServiceClient
from flowmesh_store.ordered_pieces import PIECES_AT_ONCE
from flowmesh_store.signed_objects import SignedObjects, UrlRefusedError

PAUSES_S = (0.1, 0.5, 2.0)
"""Pauses between the tries of a request that the server did not answer."""
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class SignedAccess:
    """What all blobs of a worker are read and put with.

    Attributes:
        service: gives URLs.
        objects: uses them.
        sleep: waits for a number of seconds.
        pieces: places for the pieces of large blobs that are read at once.
    """

    service: BlobServiceClient
    objects: SignedObjects
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    pieces: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PIECES_AT_ONCE))

    async def use(
        self, ask: Callable[[], Awaitable[str]], call: Callable[[str], Awaitable[_Result]]
    ) -> _Result:
        """Asks for a URL and makes a request with it, up to four times, each with another URL.

        Raises:
            UrlRefusedError: the server refused two URLs.
            StoreUnavailableError: it did not answer.
        """
        is_refused = False
        for pause_s in PAUSES_S:
            try:
                return await call(await ask())
            except UrlRefusedError:
                if is_refused:
                    raise
                is_refused = True  # it may have expired on its way
            except StoreUnavailableError:
                await self.sleep(pause_s)
        return await call(await ask())
