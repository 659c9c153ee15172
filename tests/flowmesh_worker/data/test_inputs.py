"""Inputs are fetched concurrently, and a fetch that fails leaves nothing under way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.blob_views import OneView

from flowmesh_core.units import Digest
from flowmesh_worker.data.inputs import Inputs
from flowmesh_worker.data.verified_chunks import VerifiedChunks

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World


class GatedBlobs:
    """A cache that lacks one blob and fetches the others once a gate opens."""

    def __init__(self, missing: Digest) -> None:
        self._missing = missing
        self.gate = asyncio.Event()
        self.pinned_now: list[Digest] = []

    @asynccontextmanager
    async def pinned(self, digest: Digest) -> AsyncIterator[Path]:
        """Counts what is pinned."""
        if digest == self._missing:
            raise FileNotFoundError(digest)
        await self.gate.wait()
        self.pinned_now.append(digest)
        try:
            yield Path(digest)
        finally:
            self.pinned_now.remove(digest)


async def test_a_chunk_that_is_missing_leaves_no_other_chunk_pinned(
    world: "World", tmp_path: Path
) -> None:
    rows = await world.dataset([{"n": n, "t": "x" * 1000} for n in range(2000)])
    manifest = rows.artifact.manifest
    assert manifest is not None
    assert len(manifest.chunks) > 1
    blobs: Any = GatedBlobs(manifest.chunks[0].blob)
    views: Any = OneView(blobs)
    components: Any = None
    assignment = world.assignment("data.sql", inputs={"rows": rows})
    others = asyncio.all_tasks()
    async with AsyncExitStack() as pins:
        inputs = Inputs(views, components, VerifiedChunks(tmp_path / "verified"))
        with pytest.raises(ExceptionGroup):
            await inputs.fetch(assignment, pins)
    blobs.gate.set()
    if left := asyncio.all_tasks() - others:
        await asyncio.wait(left)
    assert not blobs.pinned_now
