"""Fetches components of prewarm entries, and keeps them on the disk until they are loaded.

The shell calls it with the worker agent's instructions; the answers are events.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.instructions import FetchComponent
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.failures import store_failure
from flowmesh_worker.ipc.frames import HostInput


@dataclass(slots=True, eq=False)
class _PrewarmFiles:
    components: dict[str, HostInput] = field(default_factory=dict)
    pins: AsyncExitStack = field(default_factory=AsyncExitStack)
    task: "asyncio.Task[None] | None" = None


class PrewarmData:
    """The components of all entries of the prewarm list."""

    def __init__(self, cache: ComponentCache, post: Callable[[e.Event], None]) -> None:
        self._cache = cache
        self._post = post
        self._entries: dict[Digest, _PrewarmFiles] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def fetch(self, instruction: FetchComponent) -> None:
        """Fetches a component and keeps it on the disk."""
        files = self._entries.setdefault(instruction.signature, _PrewarmFiles())
        files.task = asyncio.get_running_loop().create_task(self._fetch(instruction, files))

    def components(self, signature: Digest) -> dict[str, HostInput]:
        """Returns what has been fetched for an entry, by port."""
        files = self._entries.get(signature)
        return dict(files.components) if files is not None else {}

    def release(self, signature: Digest) -> None:
        """Stops fetching for an entry; what was fetched may be evicted from the disk."""
        files = self._entries.pop(signature, None)
        if files is None:
            return
        if files.task is not None:
            files.task.cancel()
        task = asyncio.get_running_loop().create_task(_close(files))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Releases everything."""
        for signature in list(self._entries):
            self.release(signature)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _fetch(self, instruction: FetchComponent, files: _PrewarmFiles) -> None:
        signature, port, artifact = instruction.signature, instruction.port, instruction.artifact
        try:
            path = await files.pins.enter_async_context(
                self._cache.pinned(artifact, instruction.read_scopes, instruction.token)
            )
        except Exception as error:
            failure = store_failure(error, "a model could not be fetched")
            self._post(e.ComponentFailed(signature, failure))
        else:
            files.components[port] = HostInput("tree", artifact.digest, (str(path),))
            self._post(e.ComponentFetched(signature, port))


async def _close(files: _PrewarmFiles) -> None:
    if files.task is not None:
        await asyncio.wait([files.task])
    await files.pins.aclose()
