"""Deletes what a revocation concerns: results, and blobs that no other live root of a scope needs.

The roots are those of a collection (``cache.admin``). Unlike a collection it deletes young blobs
too: those that are put meanwhile are new content, which is refused until the revocation has ended.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.records.run_redaction import ConcernedRun
from flowmesh_control.revocation.derivations import Content, Derived
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.collection.mark import LiveBlobs, Marking
from flowmesh_store.collection.sweep import ANY_AGE
from flowmesh_store.ports import StoredBlob
from flowmesh_store.store import Store

_LOADED = ("model", "adapter")
Scoped = tuple[tuple[str, ...], Artifact]


@dataclass(slots=True)
class Erasable:
    """What is to be deleted.

    Attributes:
        blobs: by scope.
        components: identities of models and adapters, by the digest of their manifest.
        kinds: of the artifacts, by identity.
        workers: those that made the results.
    """

    blobs: Mapping[str, Sequence[Digest]]
    components: dict[Digest, Digest] = field(default_factory=dict)
    kinds: dict[Digest, str] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Erased:
    """What was deleted, or would be.

    Attributes:
        kept_blobs: how many other live roots need.
        forget: digests and identities that no live root of any scope needs.
    """

    counts: Counter[str] = field(default_factory=Counter)
    kept_blobs: int = 0
    forget: tuple[Digest, ...] = ()


class Eraser:
    """Deletes results and blobs of one store."""

    def __init__(self, store: Store, cache: CacheAdmin) -> None:
        """Keeps the arguments.

        Args:
            store: has them.
            cache: knows the live roots.
        """
        self._store = store
        self._cache = cache

    async def erasable(
        self, content: Content, found: Derived, runs: Iterable[ConcernedRun]
    ) -> Erasable:
        """Returns what consists of the content, and of what was made from it.

        Raises:
            StoreError: something could not be read.
        """
        marking, erasable = Marking(), Erasable({})
        root = Artifact(content.kind, content.identity, content.blob)
        _mark(marking, erasable, (content.scopes, root), found)
        for run in runs:
            for scoped in run.content:
                _mark(marking, erasable, scoped, found)
        records = self._store.records
        async for key, record in in_batches(each_of(found.results), records.read):
            result = decoded(record)
            if result is None:
                continue
            erasable.workers.update(filter(None, (result.provenance.worker,)))
            scope = key.split("/")[1]
            for artifact in result.outputs.values():
                _mark(marking, erasable, ((scope,), artifact), found)
        live = await marking.complete(self._store)
        erasable.blobs = {scope: sorted(digests) for scope, digests in sorted(live.items())}
        return erasable

    async def delete_results(self, keys: Iterable[str]) -> int:
        """Deletes action results, and what deleted ones leave behind; returns how many."""
        records, count = self._store.sweepable_records, 0

        async def delete(key: str) -> bool:
            return await records.delete(key, older_than_s=ANY_AGE)

        async for _, deleted in in_batches(each_of(keys), delete):
            count += deleted
        await records.erase_deleted()
        return count

    async def delete_blobs(
        self, erasable: Erasable, found: Derived, revoked: ContentRevoked, *, dry_run: bool
    ) -> Erased:
        """Deletes the blobs that no other live root of their scope needs.

        Raises:
            StoreError: the roots could not be read, so no blob was deleted; or try again.
        """
        live = await self._cache.live((revoked,), found.results)
        erased, sizes = Erased(), await self._sizes(erasable.blobs)
        doomed = [b for b in sizes if b.digest not in live.get(b.scope, ())]
        erased.kept_blobs = len(sizes) - len(doomed)

        async def delete(blob: StoredBlob) -> bool:
            return dry_run or await self._store.sweepable_blobs.delete(
                blob.scope, blob.digest, older_than_s=ANY_AGE
            )

        async for blob, deleted in in_batches(each_of(doomed), delete):
            if deleted:
                erased.counts["blobs"] += 1
                erased.counts["bytes"] += blob.size_bytes
        if not dry_run:
            self._cache.blobs_deleted()
        erased.forget = _nowhere_live(erasable, live)
        return erased

    async def _sizes(self, wanted: Mapping[str, Sequence[Digest]]) -> list[StoredBlob]:
        """Returns those of the blobs that exist."""
        sets = {scope: frozenset(digests) for scope, digests in wanted.items()}
        listed = self._store.sweepable_blobs.blobs()
        return [blob async for blob in listed if blob.digest in sets.get(blob.scope, ())]


def _mark(marking: Marking, erasable: Erasable, scoped: Scoped, found: Derived) -> None:
    scopes, artifact = scoped
    marking.add(scopes, artifact)
    if artifact.digest in found.identities:
        erasable.kinds[artifact.digest] = artifact.kind
        if artifact.kind in _LOADED:
            erasable.components[artifact.blob] = artifact.digest


def _nowhere_live(erasable: Erasable, live: LiveBlobs) -> tuple[Digest, ...]:
    """Returns what workers are to forget: others may use equal content in their own scopes."""
    needed = frozenset[Digest]().union(*live.values())
    blobs = {d for digests in erasable.blobs.values() for d in digests} - needed
    components = [c for blob, c in erasable.components.items() if blob in blobs]
    return tuple(dict.fromkeys((*components, *sorted(blobs))))
