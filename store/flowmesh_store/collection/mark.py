"""The mark phase of a collection: roots, and everything that the manifests among them name."""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Container, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.blobs import BlobViews
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import RecordStore

_DIGEST_IN_JSON = re.compile(rb'"([0-9a-f]{64})"')
_WITH_MANIFEST = frozenset({"dataset", "model", "adapter", "checkpoint"})

LiveBlobs = Mapping[str, AbstractSet[Digest]]
"""The digests that must stay, by scope."""
_Manifest = tuple[tuple[str, ...], Digest]


class Marking:
    """Collects the roots of a collection, and then what they consist of."""

    def __init__(self) -> None:
        self._live: defaultdict[str, set[Digest]] = defaultdict(set)
        self._manifests: set[_Manifest] = set()

    def add(self, scopes: tuple[str, ...], artifact: Artifact) -> None:
        """Adds a root.

        Args:
            scopes: where whoever needs it reads it, at least one; it stays in all of them.
            artifact: the content.
        """
        for scope in scopes:
            self._live[scope].update(artifact.blobs())
        if artifact.manifest is None and artifact.kind in _WITH_MANIFEST:
            self._manifests.add((scopes, artifact.blob))

    async def add_results(
        self, records: RecordStore, *, left_out: Container[str] = frozenset()
    ) -> None:
        """Adds what the action results of all scopes name.

        Args:
            records: of the store.
            left_out: keys of results that do not count.

        Raises:
            StoreUnavailableError, StoreError: something could not be read, so nothing may be
                deleted.
        """

        async def keys() -> AsyncIterator[str]:
            async for key in records.keys(f"{ACTIONS}/"):
                if key not in left_out:
                    yield key

        async for key, record in in_batches(keys(), records.read):
            result = decoded(record)
            if result is not None:
                for artifact in result.outputs.values():
                    self.add((key.split("/")[1],), artifact)

    async def complete(self, store: BlobViews) -> LiveBlobs:
        """Returns the digests of the roots and of everything that manifests among them name.

        Args:
            store: has the manifests; one that is missing or corrupt marks only itself.

        Raises:
            StoreUnavailableError, StoreError: a manifest could not be read, so nothing may be
                deleted.
        """

        async def spelled(manifest: _Manifest) -> list[bytes]:
            scopes, digest = manifest
            with suppress(BlobNotFoundError, BlobCorruptError):
                # Marks any text in a manifest that looks like a digest: too much is harmless, a
                # deleted chunk is not.
                data = await store.view(write=scopes[0], read=scopes).get(digest)
                return _DIGEST_IN_JSON.findall(data)
            return []

        async for (scopes, _), found in in_batches(_each(self._manifests), spelled):
            for scope in scopes:
                self._live[scope].update(Digest(name.decode()) for name in found)
        return self._live


async def _each(manifests: AbstractSet[_Manifest]) -> AsyncIterator[_Manifest]:
    for manifest in manifests:
        yield manifest
