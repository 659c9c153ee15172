"""A cache of models, adapters and resident data sets on the worker's disk, within a byte budget.

Components that an attempt or a running host uses stay; of the others, the least recently used is
removed first.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flowmesh_core.errors import StoreError
from flowmesh_core.protocol.messages import Component
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobView, BlobViews, not_found
from flowmesh_store.tree import fetch_tree, read_tree
from flowmesh_worker.data.resident_dataset import DATASET, fetch_dataset, read_manifest

_DISK = "disk"
_Source = tuple[Digest, tuple[str, ...]]
"""The manifest that a fetch reads, and the scopes that it reads in."""


@dataclass(slots=True)
class _CachedTree:
    path: Path
    size_bytes: int = 0
    ready: bool = False
    pins: int = 0
    doomed: bool = False
    fetch: asyncio.Task[None] | None = None
    source: "_Source | None" = None
    readable: set[tuple[str, ...]] = field(default_factory=set)


class ComponentCache:
    """Trees by their identity in one directory, which no other process may write to.

    What lies there was compared with its identity before it was fetched. A tree lies there once;
    whoever uses it in scopes in which it was not read before has the store asked for its files.
    """

    def __init__(
        self,
        store: BlobViews,
        directory: Path,
        budget_bytes: int,
        *,
        in_use: Callable[[], Iterable[Digest]],
        on_change: Callable[[], None],
    ) -> None:
        """Finds the complete trees that an earlier process left in the directory.

        Args:
            store: where trees come from.
            directory: used by this object alone.
            budget_bytes: size of the cache; exceeded only by trees that are pinned or in use.
            in_use: returns the trees that running hosts have loaded; they stay.
            on_change: called when a component was added or removed.
        """
        self._store = store
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
    async def pinned(
        self, artifact: Artifact, scopes: tuple[str, ...], token: str = ""
    ) -> AsyncIterator[Path]:
        """Fetches the tree if it is missing; its directory stays until the block ends.

        Args:
            artifact: a model, an adapter, or a data set that a replica keeps.
            scopes: where whoever uses it may read it.
            token: that says these scopes, for the blob service.

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
                await self._fetched(artifact, scopes, token, cached)
            if scopes not in cached.readable:
                await self._require_readable(artifact, scopes, token)
                cached.readable.add(scopes)
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

    async def _fetched(
        self, artifact: Artifact, scopes: tuple[str, ...], token: str, cached: _CachedTree
    ) -> None:
        """Begins or joins the fetch, which continues while at least one attempt has it pinned."""
        source = (artifact.blob, scopes)
        while not cached.ready:
            if cached.fetch is None:
                cached.source = source
                fetch = self._fetch(artifact, scopes, token, cached)
                cached.fetch = asyncio.get_running_loop().create_task(fetch)
            is_own = cached.source == source
            try:
                await asyncio.shield(cached.fetch)
            except StoreError:
                if is_own:
                    raise  # else another attempt's manifest is wrong, or not in its scopes
            finally:
                if cached.fetch is not None and cached.fetch.done():
                    cached.fetch = None

    async def _fetch(
        self, artifact: Artifact, scopes: tuple[str, ...], token: str, cached: _CachedTree
    ) -> None:
        view = self._view(scopes, token)
        if artifact.kind == DATASET:
            cached.size_bytes = await fetch_dataset(view, artifact, cached.path)
        else:
            expected = (artifact.kind, artifact.digest)
            tree = await fetch_tree(view, artifact.blob, cached.path, expected)
            cached.size_bytes = tree.size_bytes
        cached.ready = True
        cached.readable.add(scopes)
        await self._evict()
        self._on_change()

    async def _require_readable(
        self, artifact: Artifact, scopes: tuple[str, ...], token: str
    ) -> None:
        """Asks the store whether some scopes have all of what lies on the disk.

        Raises:
            BlobNotFoundError: they do not.
            BlobCorruptError: the manifest is not that of the tree.
        """
        blobs = self._view(scopes, token)
        if artifact.kind == DATASET:
            manifest = await read_manifest(blobs, artifact)
            files = {chunk.blob for chunk in manifest.chunks}
        else:
            tree = await read_tree(blobs, artifact.blob)
            tree.require(artifact.kind, artifact.digest)
            files = {file.digest for file in tree.files}
        for digest in await blobs.missing(files):
            raise not_found(digest, f"scopes {', '.join(scopes)}")

    def _view(self, scopes: tuple[str, ...], token: str) -> BlobView:
        return self._store.view(write=scopes[0], read=scopes, token=token)

    async def delete(self, digests: Iterable[Digest]) -> None:
        """Deletes trees, those that an attempt uses when it has ended; also one that is loaded."""
        for digest in digests:
            if (cached := self._trees.get(digest)) is not None:
                cached.doomed = True
        await self._evict()

    async def _evict(self) -> None:
        for digest, cached in list(self._trees.items()):
            if cached.doomed and cached.ready and not cached.pins:
                await self._remove(digest, cached)
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
            await self._remove(digest, cached)

    async def _remove(self, digest: Digest, cached: _CachedTree) -> None:
        if self._trees.get(digest) is not cached:
            return  # a concurrent call was faster
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
