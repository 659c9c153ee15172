"""Models and adapters on the worker's disk: fetched once, kept within a byte budget.

What an attempt or a running host uses is pinned; of the rest, the least recently used leaves first.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from flowmesh_core.protocol.messages import Component
from flowmesh_core.units import Digest
from flowmesh_store.tree import TreeBlobs, fetch_tree

_DISK = "disk"


@dataclass(slots=True)
class _Held:
    path: Path
    size_bytes: int = 0
    ready: bool = False
    pins: int = 0
    fetch: asyncio.Task[None] | None = None


class ComponentCache:
    """Trees by digest below one directory, which this object owns alone."""

    def __init__(
        self,
        blobs: TreeBlobs,
        directory: Path,
        budget_bytes: int,
        *,
        in_use: Callable[[], Iterable[Digest]],
        on_change: Callable[[], None],
    ) -> None:
        """Takes up what an earlier process left complete in the directory.

        Args:
            blobs: where trees come from.
            directory: owned by this object alone.
            budget_bytes: how much to keep; exceeded only by what is pinned or in use.
            in_use: what running hosts have loaded; it stays.
            on_change: told when a component comes or goes.
        """
        self._blobs = blobs
        self._in_use = in_use
        self._directory = directory
        self._budget_bytes = budget_bytes
        self._on_change = on_change
        self._held: dict[Digest, _Held] = {}
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime)
        for path in found:
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
            else:
                size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
                self._held[Digest(path.name)] = _Held(path, size, ready=True)

    def holds(self, digest: Digest) -> bool:
        """Whether it lies here whole."""
        held = self._held.get(digest)
        return held is not None and held.ready

    def digests(self) -> frozenset[Digest]:
        """All that lie here whole."""
        return frozenset(digest for digest, held in self._held.items() if held.ready)

    @asynccontextmanager
    async def pinned(self, digest: Digest) -> AsyncIterator[Path]:
        """The directory, fetched where it is missing, there until the block ends.

        Raises:
            StoreError: as ``fetch_tree``.
        """
        held = self._held.pop(digest, None) or _Held(self._directory / digest)
        self._held[digest] = held
        held.pins += 1
        try:
            if not held.ready:
                await self._fetched(digest, held)
            os.utime(held.path)
            yield held.path
        finally:
            held.pins -= 1
            if not held.ready and not held.pins:
                self._held.pop(digest, None)
                if held.fetch is not None:
                    held.fetch.cancel()
                    await asyncio.wait([held.fetch])
            await self._make_room()

    async def _fetched(self, digest: Digest, held: _Held) -> None:
        """Begins or joins the fetch, which goes on for as long as anybody waits for it."""
        if held.fetch is None:
            held.fetch = asyncio.get_running_loop().create_task(self._fetch(digest, held))
        try:
            await asyncio.shield(held.fetch)
        finally:
            if held.fetch is not None and held.fetch.done():
                held.fetch = None

    async def _fetch(self, digest: Digest, held: _Held) -> None:
        tree = await fetch_tree(self._blobs, digest, held.path)
        held.size_bytes, held.ready = tree.size_bytes, True
        await self._make_room()
        self._on_change()

    async def _make_room(self) -> None:
        used = sum(h.size_bytes for h in self._held.values() if h.ready)
        if used <= self._budget_bytes:
            return
        in_use = set(self._in_use())
        for digest, held in list(self._held.items()):
            if used <= self._budget_bytes:
                return
            if held.pins or not held.ready or digest in in_use:
                continue
            used -= held.size_bytes
            del self._held[digest]
            # Renamed first, so that a worker killed now does not take half of it for whole.
            doomed = self._directory / f".gone-{digest[:16]}-{time.monotonic_ns()}"
            os.rename(held.path, doomed)
            await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)
            self._on_change()

    def report(self, loaded: Iterable[tuple[Digest, str]]) -> tuple[Component, ...]:
        """All components with the nearest tier.

        Args:
            loaded: what running hosts have loaded, with the tier it is in.
        """
        tiers = dict(loaded)
        return tuple(
            Component(digest, tiers.get(digest, _DISK), held.size_bytes)
            for digest, held in self._held.items()
            if held.ready
        )
