"""The ports of storage. Control, worker and CLI use them; backends implement them.

All are asynchronous: both shells (control plane and agent) are asyncio programs. Methods may be
called concurrently. Errors are those of ``flowmesh_core.errors.StoreError``.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flowmesh_core.units import Digest


class BlobStore(Protocol):
    """Immutable bytes by the blake3-256 digest of their content, under ``cas/``."""

    async def get(self, digest: Digest) -> bytes:
        """Reads a small blob whole.

        Raises:
            BlobNotFoundError: there is none.
            BlobCorruptError: the bytes read have another digest (verifying decorator, filesystem).
            StoreUnavailableError: the store did not answer.
        """
        ...

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """Stores a blob; storing it again is harmless and cheap.

        Args:
            digest: the digest of the content.
            data: the content, or a file with it, which is streamed and kept.

        Raises:
            StoreFullError: no space; nothing of it is left behind.
            StoreUnavailableError: the store did not answer.
        """
        ...

    async def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        """Those of the digests that the store does not hold."""
        ...


class BlobFiles(Protocol):
    """A blob store that also streams to files; all backends do both."""

    async def fetch(self, digest: Digest, target: Path) -> int:
        """Streams a blob into a file, verified while it is written and moved into place whole.

        Returns:
            Its size in bytes.

        Raises:
            BlobNotFoundError, BlobCorruptError, StoreFullError, StoreUnavailableError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """A small mutable object and its version."""

    data: bytes
    etag: str


class RecordStore(Protocol):
    """Small keyed objects with conditional writes: specs, ledgers, action results, epochs."""

    async def read(self, key: str) -> Record | None:
        """The object under this key (``runs/<uid>/spec``), or None."""
        ...

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Writes an object under a condition, atomically and durably.

        Args:
            key: slash-separated; segments of ``[A-Za-z0-9._=@-]``.
            data: the whole content.
            if_match: the etag that must be in place; None means that nothing may be there yet
                (``If-None-Match: *``). Across a network a write may be sent twice and its second
                sending be refused: a store there counts the same bytes, found in place, as
                written. Writers of which one only may win put something of their own into them.

        Returns:
            The new etag.

        Raises:
            ConditionFailedError: the condition does not hold (HTTP 412).
            StoreFullError, StoreUnavailableError.
        """
        ...

    def keys(self, prefix: str) -> AsyncIterator[str]:
        """All keys that start with the prefix, in order."""
        ...


class RecordFolders(Protocol):
    """Lists one level of the keys: a bucket with many below each name tells the names alone."""

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """The names between the prefix, which ends in a slash, and the next slash; in order."""
        ...


class Records(RecordStore, RecordFolders, Protocol):
    """A record store that also lists folders; all backends do both."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """What a sweep sees of a blob."""

    digest: Digest
    size_bytes: int
    age_s: float
