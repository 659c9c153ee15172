"""Opens a store by its address; called by control plane, workers and CLI."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from flowmesh_core.errors import StoreError
from flowmesh_store.blobs import DEFAULT_GRACE_S, BlobArea, CorruptBlobDeleter
from flowmesh_store.collection.sweep import Sweepable, SweepableRecords
from flowmesh_store.durability import Durability
from flowmesh_store.filesystem import FilesystemBlobs, FilesystemRecords, FilesystemSweep, StoreRoot
from flowmesh_store.memory import MemoryBlobs, MemoryContent, MemoryRecords
from flowmesh_store.ports import Records
from flowmesh_store.scoped_blobs import ScopedBlobs
from flowmesh_store.verified_blobs import VerifyingBlobs


@dataclass(frozen=True, slots=True)
class Store:
    """One bucket or directory.

    Attributes:
        url: its address, without credentials.
        records: small keyed objects with conditional writes.
        sweepable_blobs: the blobs of all scopes, for the collector.
        sweepable_records: the same records for the collector.
    """

    url: str
    records: Records
    sweepable_blobs: Sweepable
    sweepable_records: SweepableRecords
    _area: Callable[[str], BlobArea] = field(repr=False)
    _closers: tuple[Callable[[], None], ...] = field(default=(), repr=False)

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> ScopedBlobs:
        """As :meth:`BlobViews.view`; every read is verified."""
        return ScopedBlobs(self._area, write, read)

    def with_areas(self, decorate: Callable[[BlobArea], BlobArea]) -> "Store":
        """Returns the store with the blobs of every scope decorated."""
        area = self._area
        return replace(self, _area=lambda scope: decorate(area(scope)))

    def close(self) -> None:
        """Closes connections; may be called repeatedly."""
        for close in self._closers:
            close()


def open_store(
    url: str | Path,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    durability: Durability = Durability.VERDICTS,
    spool_dir: Path | None = None,
) -> Store:
    """Opens a store.

    Args:
        url: ``memory:`` (a new, empty one each time), ``file:///path`` or a plain path (created if
            missing), or ``s3://bucket/prefix?endpoint=http://host:port&region=name``, with
            credentials from the environment, the profile or the machine, as AWS tools find them.
        grace_s: the collector's grace in seconds; a put renews a blob older than half of it.
        durability: which writes of a filesystem store wait for the disk.
        spool_dir: where outputs are spooled for a store that is not a directory.

    Raises:
        StoreError: the address is malformed, or the directory cannot be used.
    """
    if isinstance(url, Path):
        return _open_directory(url, grace_s, durability)
    parts = urlsplit(url)
    match parts.scheme:
        case "":
            return _open_directory(Path(url), grace_s, durability)
        case "file" if parts.netloc in ("", "localhost") and parts.path:
            return _open_directory(Path(unquote(parts.path)), grace_s, durability)
        case "memory":
            content, records = MemoryContent(spool_dir=spool_dir), MemoryRecords()
            return Store(
                "memory:",
                records,
                content,
                records,
                lambda scope: _verifying(MemoryBlobs(content, scope)),
            )
        case "s3":
            return _open_bucket(url, grace_s, spool_dir)
    raise StoreError(
        f"{url!r} is not the address of a store",
        remedy="use a path, file:///path, s3://bucket/prefix?endpoint=URL, or memory:",
    )


def _open_directory(path: Path, grace_s: float, durability: Durability) -> Store:
    root = StoreRoot(path)
    area = partial(FilesystemBlobs, root, grace_s=grace_s, durable=durability is Durability.POWER)
    records = FilesystemRecords(root, durability=durability)
    return Store(root.path.as_uri(), records, FilesystemSweep(root), records, area)


def _open_bucket(url: str, grace_s: float, spool_dir: Path | None) -> Store:
    # boto3 and obstore take a third of a second to import: only for a bucket.
    from flowmesh_store.s3 import open_bucket  # noqa: PLC0415

    blobs, records, sweep = open_bucket(url, grace_s=grace_s, spool_dir=spool_dir)
    return Store(
        records.location.url,
        records,
        sweep,
        records,
        lambda scope: _verifying(blobs(scope)),
        (records.close,),
    )


class _UnverifiedArea(BlobArea, CorruptBlobDeleter, Protocol):
    """The blobs of a scope, of a backend that does not verify what it reads."""


def _verifying(area: _UnverifiedArea) -> VerifyingBlobs:
    return VerifyingBlobs(area, area)
