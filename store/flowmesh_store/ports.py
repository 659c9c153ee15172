"""The ports of storage. Control plane, worker and CLI use them; backends implement them.

All are asynchronous, because control plane and worker are asyncio programs. Methods may be called
concurrently. They raise ``flowmesh_core.errors.StoreError``.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import msgspec

from flowmesh_core.units import Digest

NO_SIZES: Mapping[Digest, int] = MappingProxyType({})


class BlobStore(Protocol):
    """Immutable bytes by the blake3-256 digest of their content, below ``cas/``."""

    async def get(self, digest: Digest) -> bytes:
        """Reads a small blob into memory.

        Raises:
            BlobNotFoundError: it does not exist.
            BlobCorruptError: the bytes have another digest (verifying decorator, filesystem).
            StoreUnavailableError: the store did not answer.
        """
        ...

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """Stores a blob; storing it again is harmless and cheap.

        Args:
            digest: the digest of the content.
            data: the content, or a file with it, which is streamed and not removed.

        Raises:
            StoreFullError: no space; nothing of it is left behind.
            StoreUnavailableError: the store did not answer.
        """
        ...

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """Returns those of the digests whose blobs do not exist, or have another size than given.

        Args:
            digests: of the blobs.
            sizes: in bytes, as far as they are known; those of other digests do not matter.
        """
        ...


class BlobFiles(Protocol):
    """A blob store that also streams to files; all backends do both."""

    async def fetch(self, digest: Digest, target: Path) -> int:
        """Streams a blob into a file, verifies it, and then moves it into place atomically.

        Returns:
            Its size in bytes.

        Raises:
            BlobNotFoundError, BlobCorruptError, StoreFullError, StoreUnavailableError.
        """
        ...


class Record(msgspec.Struct, frozen=True, gc=False):
    """A small mutable object and its version.

    Attributes:
        damage: why the content is not believed, and left out; empty where it is.
        unknown_key: the id of the missing key that it is sealed with; empty for other reasons.
    """

    data: bytes
    etag: str
    damage: str = ""
    unknown_key: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether this installation did not write it as it is: it is as good as missing."""
        return bool(self.damage) and not self.unknown_key


class RecordStore(Protocol):
    """Small keyed objects with conditional writes: specs, ledgers, action results, epochs."""

    async def read(self, key: str) -> Record | None:
        """Returns the object of a key such as ``runs/<uid>/spec``, or None."""
        ...

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """Writes an object under a condition, atomically and durably.

        Args:
            key: slash-separated; segments of ``[A-Za-z0-9._=@-]``.
            data: the whole content.
            if_match: the etag that the object must have; None means that it must not exist
                (``If-None-Match: *``). A network client may send a write twice, and the second
                request is then refused; so such a store counts equal bytes that it finds in place
                as written. Writers of which only one may win include a nonce in the data.

        Returns:
            The new etag.

        Raises:
            ConditionFailedError: the condition does not hold (HTTP 412).
            StoreFullError, StoreUnavailableError.
        """
        ...

    def keys(self, prefix: str) -> AsyncIterator[str]:
        """Yields all keys that start with the prefix, in order."""
        ...


class RecordFolders(Protocol):
    """Lists one level of the keys, without the many keys below."""

    def folders(self, prefix: str) -> AsyncIterator[str]:
        """Yields the names between the prefix, which ends in a slash, and the next slash."""
        ...


class Records(RecordStore, RecordFolders, Protocol):
    """A record store that also lists folders; all backends do both."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob in the listing of a sweep."""

    scope: str
    digest: Digest
    size_bytes: int
    age_s: float
