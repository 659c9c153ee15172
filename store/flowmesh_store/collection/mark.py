"""The mark phase of a collection: roots, and everything that the manifests among them name."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import decoded
from flowmesh_store.batched_requests import in_batches
from flowmesh_store.keys import ACTIONS
from flowmesh_store.ports import BlobStore, RecordStore

_DIGEST_IN_JSON = re.compile(rb'"([0-9a-f]{64})"')
_WITH_MANIFEST = frozenset({"dataset", "model", "adapter"})


async def mark(
    blobs: BlobStore, *, manifests: Iterable[Digest], others: Iterable[Digest] = ()
) -> set[Digest]:
    """Returns the digests of roots and of everything that manifests among them name.

    Args:
        blobs: has the manifests; one that is missing or corrupt marks only itself.
        manifests: roots that are manifests of data sets, models or adapters.
        others: roots that consist of one blob.

    Raises:
        StoreUnavailableError, StoreError: a manifest could not be read, so nothing may be deleted.
    """
    live = {*others}

    async def spelled(digest: Digest) -> list[bytes]:
        with suppress(BlobNotFoundError, BlobCorruptError):
            # Marks any text in a manifest that looks like a digest: too much is harmless, a
            # deleted chunk is not.
            return _DIGEST_IN_JSON.findall(await blobs.get(digest))
        return []

    async for digest, found in in_batches(_each(set(manifests)), spelled):
        live.add(digest)
        live.update(Digest(name.decode()) for name in found)
    return live


async def mark_results(blobs: BlobStore, records: RecordStore) -> set[Digest]:
    """Returns the digests that action results of all scopes name, and those in their manifests.

    Raises:
        StoreUnavailableError, StoreError: something could not be read, so nothing may be deleted.
    """
    manifests: set[Digest] = set()
    others: set[Digest] = set()
    async for _, record in in_batches(records.keys(f"{ACTIONS}/"), records.read):
        result = decoded(record)
        if result is None:
            continue
        for artifact in result.outputs.values():
            others.update(artifact.blobs())
            if artifact.manifest is None and artifact.kind in _WITH_MANIFEST:
                manifests.add(artifact.blob)
    return await mark(blobs, manifests=manifests, others=others)


async def _each(digests: Iterable[Digest]) -> AsyncIterator[Digest]:
    for digest in digests:
        yield digest
