"""Deletes revoked content from the worker's disk, as the control plane asks."""

import asyncio
import logging

from flowmesh_core.units import Digest
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_worker.data.components import ComponentCache

_log = logging.getLogger(__name__)


class Forgetting:
    """Performs the instruction ``Forget``, beside the worker's other work."""

    def __init__(self, blobs: BlobCache, components: ComponentCache) -> None:
        self._blobs = blobs
        self._components = components
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, digests: tuple[Digest, ...]) -> None:
        """Begins to delete blobs and components; those in use go when they are released."""
        task = asyncio.get_running_loop().create_task(self._delete(digests))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits until everything that was asked for is deleted."""
        await asyncio.gather(*self._tasks)

    async def _delete(self, digests: tuple[Digest, ...]) -> None:
        try:
            await self._blobs.delete(digests)
            await self._components.delete(digests)
        except OSError as error:
            _log.warning("revoked content could not be deleted from the disk: %s", error)
