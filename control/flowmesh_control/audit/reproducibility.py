"""Checks whether an action can be executed again: its record and all of its inputs are stored.

Used by :class:`AuditSubmission`. Small content is stored only inside the record of the action that
produced it; the part that an audited action needs is put under ``cas/`` first.
"""

import asyncio
from collections.abc import Sequence

from flowmesh_core.audit.reconstruct import ReproducibleAction
from flowmesh_core.errors import LostBlobError, StoreError, StoreUnavailableError
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import ScopePlan
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache, StoredResult
from flowmesh_store.blobs import BlobViews
from flowmesh_store.tree import read_tree

_TREES = frozenset({"model", "adapter"})


class ReproducibilityCheck:
    """Checks the records and inputs of one run's actions."""

    def __init__(
        self,
        store: BlobViews,
        cache: ActionCache,
        scopes: ScopePlan,
        made: Sequence[ReproducibleAction],
    ) -> None:
        """Indexes a run's actions by step.

        Args:
            store: has the inputs.
            cache: has the records.
            scopes: the run's; small content is put into its own.
            made: all actions of the run.
        """
        self._blobs = store.view(write=scopes.private, read=scopes.readable)
        self._cache = cache
        self._scopes = scopes.readable
        self._by_step: dict[str, list[ReproducibleAction]] = {}
        for one in made:
            self._by_step.setdefault(one.step.path, []).append(one)
        self._inline: dict[Digest, bytes] = {}
        self._steps_read: set[str] = set()
        self._read_lock = asyncio.Lock()

    async def record_of(self, made: ReproducibleAction) -> StoredResult | str:
        """Returns the published record of an action, or why there is none to compare with."""
        found = await self._cache.lookup(made.action_id, self._scopes)
        if found is None:
            return "its published record is missing (expired, purged, or never published)"
        given = {port: a.digest for port, a in made.inputs.items()}
        if found.result.inputs != given:
            return "it was published for other inputs, which its cache key ignores"
        return found

    async def lacks(self, made: ReproducibleAction) -> str:
        """Returns which input is missing; empty where all are stored now."""
        for port, artifact in made.inputs.items():
            missing = await self._missing(artifact)
            if missing:
                await self._put_inline(made, missing)
                missing = await self._blobs.missing(missing)
            if missing:
                lost = ", ".join(sorted(d[:12] for d in missing)[:3])
                return f"its input {port!r} is missing in the store: {lost}"
        return ""

    async def _missing(self, artifact: Artifact) -> set[Digest]:
        if artifact.value is not None:
            return set()  # it travels in the assignment
        if artifact.kind in _TREES:
            try:
                tree = await read_tree(self._blobs, artifact.blob)
            except StoreUnavailableError:
                raise
            except (LostBlobError, StoreError):
                return {artifact.blob}
            return set(await self._blobs.missing({f.digest for f in tree.files}))
        needed = set(artifact.blobs())
        if artifact.manifest is not None:
            needed.discard(artifact.blob)  # the manifest travels in the assignment
        return set(await self._blobs.missing(needed))

    async def _put_inline(self, made: ReproducibleAction, missing: set[Digest]) -> None:
        """Stores the content that is only inside the records of the parent steps."""
        async with self._read_lock:
            for parent in made.step.parents():
                if parent not in self._steps_read:
                    self._steps_read.add(parent)
                    await self._read_inline(parent)
        for digest in missing & self._inline.keys():
            await self._blobs.put(digest, self._inline[digest])

    async def _read_inline(self, step: str) -> None:
        for one in self._by_step.get(step, ()):
            found = await self._cache.lookup(one.action_id, self._scopes)
            if found is not None:
                self._inline.update(found.result.inline)
