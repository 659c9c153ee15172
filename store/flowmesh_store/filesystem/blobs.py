"""Blobs as files in a directory.

Blobs up to 1 MiB are written, and read if they are in the page cache, on the event loop itself:
that takes 20 to 600 microseconds, while switching to a thread and back costs 50 to 150, and the
other core's cold cache as much again. Blobs are not synced to the disk one by one (see
:class:`Durability`): one torn by a power cut is found by its digest, and its action is executed
again.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from flowmesh_core.errors import BlobCorruptError, StoreAccessError, StoreFullError
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import (
    is_cached,
    make_parent,
    place,
    read_whole,
    sync_directory,
    write_beside,
)
from flowmesh_store.blobs import DEFAULT_GRACE_S, not_found
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.hashing import CHUNK_BYTES, digest_of, digest_of_file, mismatch, require
from flowmesh_store.keys import area_prefix, blob_name
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.regular_files import NotRegularFileError, is_regular, open_regular
from flowmesh_store.spool import SpooledFile, SpoolWriter, verified_file

_INLINE_BYTES = 1 << 20
_WHOLE_BYTES = 4 << 20
_INLINE_STATS = 128
_NO_LINKS = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of filesystems that do not link a file, or not once more."""

_EMPTY = digest_of(b"")


class FilesystemBlobs:
    """The blobs of one scope; every read is verified."""

    def __init__(
        self,
        root: StoreRoot,
        scope: str,
        *,
        grace_s: float = DEFAULT_GRACE_S,
        durable: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keeps the arguments.

        Args:
            root: the store's directory.
            scope: the one that this object reads and writes.
            grace_s: the collector's grace; a put renews a blob older than half of it.
            durable: sync every blob to the disk before ``put`` returns.
            clock: Unix time in seconds, comparable with the times of files.
        """
        self._root = root
        self._prefix = root.locate(area_prefix(scope))
        self._renew_after_s = grace_s / 2
        self._durable = durable
        self._clock = clock

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`."""
        descriptor, size = self._open(digest)
        if size <= _INLINE_BYTES and is_cached(descriptor, size):
            return self._read(descriptor, size, digest)
        return await asyncio.to_thread(self._read, descriptor, size, digest)

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; refuses content of another digest (BlobCorruptError)."""
        if isinstance(data, Path):
            await self._put_file(digest, data)
        elif len(data) <= _INLINE_BYTES and not self._durable:
            self._put_bytes(digest, data)
        else:
            await asyncio.to_thread(self._put_bytes, digest, data)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        wanted = list(digests)
        if len(wanted) <= _INLINE_STATS:
            return self._missing(wanted, sizes)
        return await asyncio.to_thread(self._missing, wanted, sizes)

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        descriptor, size = self._open(digest)
        if size <= _INLINE_BYTES and is_cached(descriptor, size):
            return self._fetch(descriptor, size, digest, target)
        return await asyncio.to_thread(self._fetch, descriptor, size, digest, target)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`; on the blobs' filesystem, so that a put is a rename."""
        return SpoolWriter(self._root.temporary, expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        if self._durable or spooled.path.parent != self._root.temporary:
            await asyncio.to_thread(self._adopt, spooled)
        else:
            self._adopt(spooled)

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`; by a hard link where the filesystem has them."""
        source, path = self._root.locate(area_prefix(scope) + blob_name(digest)), self.path(digest)
        try:
            linked = _link(source, path)
            if linked and self._durable:
                await asyncio.to_thread(sync_directory, path)
        except OSError as error:
            raise store_error(error, path) from error
        if linked is None:
            await self._put_file(digest, Path(source))
        return linked is not False

    async def discard(self, digest: Digest) -> None:
        """As :meth:`CorruptBlobDeleter.discard`."""
        await asyncio.to_thread(self._discard, digest)

    def path(self, digest: str) -> str:
        """Returns the path of a blob, whether it exists or not."""
        return self._prefix + blob_name(digest)

    def _open(self, digest: Digest) -> tuple[int, int]:
        path = self.path(digest)
        try:
            descriptor, found = open_regular(path)
        except NotRegularFileError as error:
            self._discard(digest)
            raise BlobCorruptError(error.message, digest=digest, where=path) from error
        except FileNotFoundError:
            raise not_found(digest, path) from None
        except OSError as error:
            raise store_error(error, path) from error
        return descriptor, found.st_size

    def _read(self, descriptor: int, size: int, digest: Digest) -> bytes:
        try:
            data = read_whole(descriptor, size)
        except OSError as error:
            raise store_error(error, self.path(digest)) from error
        finally:
            os.close(descriptor)
        if digest_of(data) == digest:
            return data
        self._discard(digest)
        raise mismatch(digest_of(data), digest, self.path(digest))

    def _is_stored(self, digest: Digest, path: str, size: int) -> bool:
        """Whether the blob is stored with the right size; renews it where it is old."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return False
        if not is_regular(found, size):
            return False
        if self._clock() - found.st_mtime < self._renew_after_s:
            return True
        with self._root.locked(digest), contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return True
        return False

    def _put_bytes(self, digest: Digest, data: bytes) -> None:
        path = self.path(digest)
        try:
            if self._is_stored(digest, path, len(data)):
                return
            if len(data) > _WHOLE_BYTES:
                self._put_chunks(digest, data)
                return
            require(digest_of(data), digest, path)
            self._place(self._root.write_temporary(data, durable=self._durable), path)
        except OSError as error:
            raise store_error(error, path) from error

    def _put_chunks(self, digest: Digest, data: bytes) -> None:
        """Hashes and writes each part while it is in the processor's cache."""
        view = memoryview(data)
        with self.spool(expected_bytes=len(data)) as writer:
            for start in range(0, len(data), CHUNK_BYTES):
                writer.write(view[start : start + CHUNK_BYTES])
            spooled = writer.finish(durable=self._durable)
        self._adopt_checked(spooled, digest)

    async def _put_file(self, digest: Digest, source: Path) -> None:
        try:
            descriptor, found = open_regular(source)
        except OSError as error:
            raise store_error(error, str(source)) from error
        size = found.st_size
        if size <= _INLINE_BYTES and not self._durable and is_cached(descriptor, size):
            self._put_open(digest, descriptor, size)
        else:
            await asyncio.to_thread(self._put_open, digest, descriptor, size)

    def _put_open(self, digest: Digest, descriptor: int, size: int) -> None:
        path = self.path(digest)
        try:
            if size <= _WHOLE_BYTES:
                self._put_bytes(digest, read_whole(descriptor, size))
                return
            if self._is_stored(digest, path, size):
                return
            with self.spool(expected_bytes=size) as writer:
                writer.copy_from(descriptor)
                spooled = writer.finish(durable=self._durable)
        except OSError as error:
            raise store_error(error, path) from error
        finally:
            os.close(descriptor)
        self._adopt_checked(spooled, digest)

    def _adopt_checked(self, spooled: SpooledFile, digest: Digest) -> None:
        try:
            require(spooled.digest, digest, self.path(digest))
            self._adopt(spooled)
        finally:
            spooled.discard()

    def _adopt(self, spooled: SpooledFile) -> None:
        path = self.path(spooled.digest)
        try:
            if not self._is_stored(spooled.digest, path, spooled.size_bytes):
                os.utime(spooled.path)
                self._place(str(spooled.path), path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise store_error(error, path) from error
            # It was spooled on another filesystem, so it is copied.
            descriptor, _ = open_regular(spooled.path)
            self._put_open(spooled.digest, descriptor, spooled.size_bytes)
        finally:
            spooled.discard()

    def _place(self, temporary: str, path: str) -> None:
        try:
            place(temporary, path)
        except BaseException:
            self._root.remove(temporary)
            raise
        if self._durable:
            sync_directory(path)

    def _missing(self, digests: list[Digest], sizes: Mapping[Digest, int]) -> set[Digest]:
        return {d for d in digests if not self._has(d, sizes.get(d))}

    def _has(self, digest: Digest, size: int | None) -> bool:
        try:
            found = os.lstat(self.path(digest))
        except OSError:
            return False
        # A power cut may leave a file without content, since blobs do not wait for the disk.
        whole = found.st_size if size is None and (found.st_size or digest == _EMPTY) else size
        return whole is not None and is_regular(found, whole)

    def _fetch(self, descriptor: int, size: int, digest: Digest, target: Path) -> int:
        if size <= _WHOLE_BYTES:
            write_beside(target, self._read(descriptor, size, digest))
            return size
        try:
            with verified_file(target, digest, expected_bytes=size) as writer:
                writer.copy_from(descriptor)
        except BlobCorruptError:
            self._discard(digest)
            raise
        finally:
            os.close(descriptor)
        return writer.size_bytes

    def _discard(self, digest: Digest) -> None:
        path = Path(self.path(digest))
        try:
            with self._root.locked(digest):
                if not _is_intact(path, digest):
                    path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            # If it cannot be deleted, readers still get an error, because every read is verified.
            if not isinstance(store_error(error, str(path)), StoreAccessError | StoreFullError):
                raise


def _is_intact(path: Path, digest: Digest) -> bool:
    try:
        return digest_of_file(path) == digest
    except NotRegularFileError:
        return False


def _link(source: str, path: str) -> bool | None:
    """Links a file to a second path; returns False if it is missing, None if links do not work.

    Raises:
        OSError: any other error of the system.
    """
    try:
        try:
            os.link(source, path)
        except FileNotFoundError:
            if not os.path.exists(source):
                return False
            make_parent(path)
            os.link(source, path)
    except FileExistsError:
        if is_regular(os.lstat(path), os.lstat(source).st_size):
            return True
        os.unlink(path)  # a power cut left a part of it
        os.link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return None
    os.utime(path)  # the collector judges by age, and a link has its source's
    return True
