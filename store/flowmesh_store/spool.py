"""Spool files, which are hashed while they are written, so that storing needs no second pass.

To store an output, get a :class:`SpoolWriter` from the store's ``spool``, write, call ``finish``
and pass the result to ``put_spooled``. The filesystem store spools next to its blobs, so that
storing is a rename.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.hashing import chunk_buffer, new_hasher, require
from flowmesh_store.os_errors import store_error

_BUFFER_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class SpooledFile:
    """A finished spool file; the owner of this object must put or discard it."""

    path: Path
    digest: Digest
    size_bytes: int

    def discard(self) -> None:
        """Removes the file if it still exists."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class SpoolWriter:
    """A temporary file that is hashed while it is written.

    Use it as a context manager: leaving it without :meth:`finish` removes the file. The calls
    block on the disk; write large outputs from a thread.
    """

    def __init__(self, directory: Path, *, expected_bytes: int = 0) -> None:
        """Creates the file.

        Args:
            directory: for the file; on the store's own filesystem putting it is a rename.
            expected_bytes: the size where it is known, for the number of hashing threads.

        Raises:
            StoreFullError, StoreUnavailableError, StoreError: the file cannot be created.
        """
        self.path = directory / temporary_name()
        self.size_bytes = 0
        self._hasher = new_hasher(expected_bytes)
        try:
            # A spool outlives this call, so the file is closed by finish() or discard().
            self._file = open(self.path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        except OSError as error:
            raise store_error(error, str(directory)) from error

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Appends bytes.

        Returns:
            The number of bytes, which is always all of them.

        Raises:
            StoreFullError: no space is left; the file is removed.
            StoreUnavailableError: the disk failed; the file is removed.
        """
        try:
            self._file.write(data)
        except OSError as error:
            self.discard()
            raise store_error(error, str(self.path)) from error
        self._hasher.update(data)
        count = data.nbytes if isinstance(data, memoryview) else len(data)
        self.size_bytes += count
        return count

    def copy_from(self, descriptor: int) -> None:
        """Appends an open file from its current position to its end.

        Raises:
            StoreFullError, StoreUnavailableError: as :meth:`write`; reading may fail as well.
        """
        buffer = chunk_buffer()
        try:
            while count := os.readv(descriptor, [buffer]):
                self.write(buffer[:count])
        except OSError as error:
            self.discard()
            raise store_error(error, str(self.path)) from error

    def finish(self, *, durable: bool = False) -> SpooledFile:
        """Closes the file and returns it with its digest.

        Args:
            durable: sync it to the disk.

        Raises:
            StoreFullError, StoreUnavailableError: the last bytes could not be written.
        """
        try:
            self._file.flush()
            if durable:
                os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            self.discard()
            raise store_error(error, str(self.path)) from error
        return SpooledFile(self.path, Digest(self._hasher.hexdigest()), self.size_bytes)

    def discard(self) -> None:
        """Closes and removes the file."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> "SpoolWriter":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the file unless it was finished."""
        if not self._file.closed:
            self.discard()


class SpoolingBlobs(Protocol):
    """A store that accepts finished spool files without hashing them again."""

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """Returns a writer whose file can be put cheaply into this store."""
        ...

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """Stores a finished spool file and removes it, whether this succeeds or not.

        Raises:
            StoreFullError, StoreUnavailableError: the blob was not stored.
        """
        ...


@contextlib.contextmanager
def verified_file(
    target: Path, digest: Digest, *, expected_bytes: int = 0
) -> Iterator[SpoolWriter]:
    """Yields a writer whose file replaces the target at the end, if it has the right digest.

    On any error the file is removed and the target is unchanged.

    Raises:
        BlobCorruptError: the written content has another digest.
        StoreFullError, StoreUnavailableError, StoreError: the target could not be written.
    """
    with SpoolWriter(target.parent, expected_bytes=expected_bytes) as writer:
        yield writer
        spooled = writer.finish()
        try:
            require(spooled.digest, digest, str(target))
            os.replace(spooled.path, target)
        except OSError as error:
            raise store_error(error, str(target)) from error
        finally:
            spooled.discard()
