"""Ports of the sweep phase: list and delete. Collector, cache admin and revocation use them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from flowmesh_core.units import Digest
from flowmesh_store.ports import StoredBlob

ANY_AGE = float("-inf")
"""Deletes without asking for the age; a bucket then says that it deleted what it does not have."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in the listing of a sweep."""

    key: str
    size_bytes: int
    age_s: float


class Sweepable(Protocol):
    """Blobs that can be listed and deleted."""

    def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        """Yields the blobs of a scope, by default of all, in the order of scopes and digests."""
        ...

    async def delete(self, scope: str, digest: Digest, *, older_than_s: float) -> bool:
        """Deletes a scope's blob if it is still at least this old; returns whether it did."""
        ...

    async def discard_unfinished(self, *, older_than_s: float) -> int:
        """Deletes unfinished writes of processes that died; returns how many."""
        ...


class SweepableRecords(Protocol):
    """Records that can be listed with their age and deleted."""

    def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """Yields all records whose keys start with the prefix, in order."""
        ...

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """Deletes a record if it is still at least this old; returns whether it did."""
        ...

    async def erase_deleted(self) -> None:
        """Erases the bytes of deleted and replaced records, where they are left behind."""
        ...
