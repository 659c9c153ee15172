"""Spool-and-hash: outputs are hashed while they are written, so that storing needs no second pass.

A writer of an output asks its store for a :class:`SpoolWriter`, writes, calls ``finish`` and hands
what it gets to ``put_spooled``. The filesystem store spools beside its blobs and only renames.
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
    """A finished file in the spool: it belongs to whoever holds this, until it is put."""

    path: Path
    digest: Digest
    size_bytes: int

    def discard(self) -> None:
        """Removes the file; harmless where it is gone."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class SpoolWriter:
    """A temporary file that knows the digest of what was written to it.

    Use it as a context manager: leaving it without :meth:`finish` removes the file. The calls
    block on the disk; write large outputs from a thread.
    """

    def __init__(self, directory: Path, *, expected_bytes: int = 0) -> None:
        """Creates the file.

        Args:
            directory: where to spool; the store's own filesystem saves a copy.
            expected_bytes: the size where it is known, for the choice of threads.

        Raises:
            StoreFullError, StoreUnavailableError, StoreError: the file cannot be made.
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
            How many: all of them.

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
        """Appends all that an open file holds from its position on.

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
        """Closes the file and names its content.

        Args:
            durable: wait until the disk holds it.

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
        """The writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the file unless it was finished."""
        if not self._file.closed:
            self.discard()


class SpoolingBlobs(Protocol):
    """A store that takes finished spool files without hashing them again."""

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """A writer whose file can be put cheaply into this store."""
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
    """A writer beside a target that replaces it whole at the end, if the content is the right one.

    Whatever goes wrong, nothing is left behind and the target stays as it was.

    Raises:
        BlobCorruptError: what was written has another digest.
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
