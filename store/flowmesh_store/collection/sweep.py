"""The ports of collection: what may be listed and deleted. Only the collector holds them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from flowmesh_core.units import Digest
from flowmesh_store.ports import StoredBlob


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """What a sweep sees of a record."""

    key: str
    size_bytes: int
    age_s: float


class Sweepable(Protocol):
    """Blobs that can be listed and deleted. Only the collector holds this."""

    def blobs(self) -> AsyncIterator[StoredBlob]:
        """All blobs, in the order of their digests."""
        ...

    async def delete(self, digest: Digest, *, older_than_s: float) -> bool:
        """Deletes a blob if it is still at least this old; whether it did."""
        ...

    async def discard_unfinished(self, *, older_than_s: float) -> int:
        """Removes what writers that died left half written; how many pieces."""
        ...


class SweepableRecords(Protocol):
    """Records that can be listed with their age and deleted. Only the collector holds this."""

    def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """All records whose keys start with the prefix, in order."""
        ...

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """Deletes a record if it is still at least this old; whether it did."""
        ...
