"""Whether an action can be made again: its record stands, and everything it was made of is there.

Small content travels inside the records of those who made it and is stored nowhere else; what an
audited action needs of that is put under ``cas/`` first.
"""

import asyncio
from collections.abc import Sequence

from flowmesh_core.audit.reconstruct import ReproducibleAction
from flowmesh_core.errors import LostBlobError, StoreError, StoreUnavailableError
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache, StoredResult
from flowmesh_store.blobs import Blobs
from flowmesh_store.tree import read_tree

_TREES = frozenset({"model", "adapter"})


class ReproducibilityCheck:
    """What stands of one run's actions."""

    def __init__(
        self,
        blobs: Blobs,
        cache: ActionCache,
        scopes: Sequence[str],
        made: Sequence[ReproducibleAction],
    ) -> None:
        """Takes the store, where the run looked, and all its actions."""
        self._blobs = blobs
        self._cache = cache
        self._scopes = scopes
        self._made: dict[str, list[ReproducibleAction]] = {}
        for one in made:
            self._made.setdefault(one.step.path, []).append(one)
        self._inline: dict[Digest, bytes] = {}
        self._read: set[str] = set()
        self._reading = asyncio.Lock()

    async def record_of(self, made: ReproducibleAction) -> StoredResult | str:
        """The published record of an action, or why there is none to compare with."""
        found = await self._cache.lookup(made.action_id, self._scopes)
        if found is None:
            return "its published record is gone (expired, purged, or never published)"
        given = {port: a.digest for port, a in made.inputs.items()}
        if found.result.inputs != given:
            return "it was published for other inputs, which it was told to ignore"
        return found

    async def lacks(self, made: ReproducibleAction) -> str:
        """Which input is gone; empty where all of them are there now."""
        for port, artifact in made.inputs.items():
            missing = await self._missing(artifact)
            if missing:
                await self._put_inline(made, missing)
                missing = await self._blobs.missing(missing)
            if missing:
                lost = ", ".join(sorted(d[:12] for d in missing)[:3])
                return f"its input {port!r} is gone from the store: {lost}"
        return ""

    async def _missing(self, artifact: Artifact) -> set[Digest]:
        if artifact.value is not None:
            return set()  # it travels in the assignment
        if artifact.kind in _TREES:
            try:
                tree = await read_tree(self._blobs, artifact.digest)
            except StoreUnavailableError:
                raise
            except (LostBlobError, StoreError):
                return {artifact.digest}
            return set(await self._blobs.missing({f.digest for f in tree.files}))
        needed = set(artifact.blobs())
        if artifact.manifest is not None:
            needed.discard(artifact.blob)  # the manifest travels in the assignment
        return set(await self._blobs.missing(needed))

    async def _put_inline(self, made: ReproducibleAction, missing: set[Digest]) -> None:
        """Stores what travelled inside the records of the steps before."""
        async with self._reading:
            for parent in made.step.parents():
                if parent not in self._read:
                    self._read.add(parent)
                    await self._read_inline(parent)
        for digest in missing & self._inline.keys():
            await self._blobs.put(digest, self._inline[digest])

    async def _read_inline(self, step: str) -> None:
        for one in self._made.get(step, ()):
            found = await self._cache.lookup(one.action_id, self._scopes)
            if found is not None:
                self._inline.update(found.result.inline)
