"""A cache of models and adapters on the worker's disk, within a byte budget.

Components that an attempt or a running host uses stay; of the others, the least recently used is
removed first.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from flowmesh_core.errors import StoreError
from flowmesh_core.protocol.messages import Component
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.tree import TreeBlobs, fetch_tree

_DISK = "disk"


@dataclass(slots=True)
class _CachedTree:
    path: Path
    size_bytes: int = 0
    ready: bool = False
    pins: int = 0
    fetch: asyncio.Task[None] | None = None
    source: str = ""


class ComponentCache:
    """Trees by their identity in one directory, which no other process may write to.

    What lies there was compared with its identity before it was fetched.
    """

    def __init__(
        self,
        blobs: TreeBlobs,
        directory: Path,
        budget_bytes: int,
        *,
        in_use: Callable[[], Iterable[Digest]],
        on_change: Callable[[], None],
    ) -> None:
        """Finds the complete trees that an earlier process left in the directory.

        Args:
            blobs: where trees come from.
            directory: used by this object alone.
            budget_bytes: size of the cache; exceeded only by trees that are pinned or in use.
            in_use: returns the trees that running hosts have loaded; they stay.
            on_change: called when a component was added or removed.
        """
        self._blobs = blobs
        self._in_use = in_use
        self._directory = directory
        self._budget_bytes = budget_bytes
        self._on_change = on_change
        self._trees: dict[Digest, _CachedTree] = {}
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime)
        for path in found:
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
            else:
                size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
                self._trees[Digest(path.name)] = _CachedTree(path, size, ready=True)

    def holds(self, digest: Digest) -> bool:
        """Whether the tree is complete on the local disk."""
        cached = self._trees.get(digest)
        return cached is not None and cached.ready

    def digests(self) -> frozenset[Digest]:
        """All that lie here whole."""
        return frozenset(digest for digest, held in self._trees.items() if held.ready)

    @asynccontextmanager
    async def pinned(self, artifact: Artifact) -> AsyncIterator[Path]:
        """Fetches the tree if it is missing; its directory stays until the block ends.

        Args:
            artifact: a model or an adapter.

        Raises:
            BlobCorruptError: the files that it names are not those of its identity.
            StoreError: as for ``fetch_tree``.
        """
        digest = artifact.digest
        cached = self._trees.pop(digest, None) or _CachedTree(self._directory / digest)
        self._trees[digest] = cached
        cached.pins += 1
        try:
            if not cached.ready:
                await self._fetched(artifact, cached)
            os.utime(cached.path)
            yield cached.path
        finally:
            cached.pins -= 1
            if not cached.ready and not cached.pins:
                self._trees.pop(digest, None)
                if cached.fetch is not None:
                    cached.fetch.cancel()
                    await asyncio.wait([cached.fetch])
            await self._evict()

    async def _fetched(self, artifact: Artifact, cached: _CachedTree) -> None:
        """Begins or joins the fetch, which continues while at least one attempt has it pinned."""
        while not cached.ready:
            if cached.fetch is None:
                cached.source = artifact.blob
                cached.fetch = asyncio.get_running_loop().create_task(self._fetch(artifact, cached))
            is_own = cached.source == artifact.blob
            try:
                await asyncio.shield(cached.fetch)
            except StoreError:
                if is_own:
                    raise  # else it was another attempt's manifest that is wrong, not this one's
            finally:
                if cached.fetch is not None and cached.fetch.done():
                    cached.fetch = None

    async def _fetch(self, artifact: Artifact, cached: _CachedTree) -> None:
        expected = (artifact.kind, artifact.digest)
        tree = await fetch_tree(self._blobs, artifact.blob, cached.path, expected)
        cached.size_bytes, cached.ready = tree.size_bytes, True
        await self._evict()
        self._on_change()

    async def _evict(self) -> None:
        used = sum(t.size_bytes for t in self._trees.values() if t.ready)
        if used <= self._budget_bytes:
            return
        in_use = set(self._in_use())
        for digest, cached in list(self._trees.items()):
            if used <= self._budget_bytes:
                return
            if cached.pins or not cached.ready or digest in in_use:
                continue
            used -= cached.size_bytes
            del self._trees[digest]
            # Renamed first, so that a worker that is killed now does not later take a partly
            # removed tree for a complete one.
            doomed = self._directory / f".gone-{digest[:16]}-{time.monotonic_ns()}"
            os.rename(cached.path, doomed)
            await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)
            self._on_change()

    def report(self, loaded: Iterable[tuple[Digest, str]]) -> tuple[Component, ...]:
        """Returns the complete components, each with its fastest tier.

        Args:
            loaded: what running hosts have loaded, with its tier.
        """
        tiers = dict(loaded)
        return tuple(
            Component(digest, tiers.get(digest, _DISK), cached.size_bytes)
            for digest, cached in self._trees.items()
            if cached.ready
        )
