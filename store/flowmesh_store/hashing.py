"""blake3-256 digests of content, for every backend and for engines that hash their outputs."""

import os
import threading
from pathlib import Path

from blake3 import blake3

from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.units import Digest
from flowmesh_store.regular_files import open_regular

CHUNK_BYTES = 1 << 20
"""Size in which files are read, hashed and written; fits into the second-level cache."""

_buffers = threading.local()
_THREADS_FROM_BYTES = 64 << 20
_THREADS_FROM_CORES = 4


def digest_of(data: bytes | bytearray | memoryview) -> Digest:
    """Returns the digest of bytes in memory."""
    return Digest(blake3(data).hexdigest())


def new_hasher(expected_bytes: int = 0) -> blake3:
    """Returns an incremental hasher.

    It uses several threads only for large content on machines with at least four cores; otherwise
    they cost more than they gain (one thread hashes 3.5 GiB/s, more than most disks read).

    Args:
        expected_bytes: the size of the content; 0 where it is unknown.
    """
    many = expected_bytes >= _THREADS_FROM_BYTES and (os.cpu_count() or 1) >= _THREADS_FROM_CORES
    return blake3(max_threads=blake3.AUTO if many else 1)


def chunk_buffer() -> memoryview:
    """Returns this thread's buffer of :data:`CHUNK_BYTES`; the next call returns the same one.

    Allocating one each time would cost more than copying a small file: the kernel zeroes its pages.
    """
    if not hasattr(_buffers, "chunk"):
        _buffers.chunk = memoryview(bytearray(CHUNK_BYTES))
    chunk: memoryview = _buffers.chunk
    return chunk


def digest_of_file(path: Path) -> Digest:
    """Hashes a file in one pass, without reading it whole into memory.

    Raises:
        NotRegularFileError: it is a link, a FIFO, a device or the like.
        OSError: the file cannot be read.
    """
    descriptor, found = open_regular(path)
    try:
        return digest_of_open(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def digest_of_open(descriptor: int, size_bytes: int) -> Digest:
    """Hashes an open file, from its position to its end.

    Args:
        descriptor: of the file.
        size_bytes: its size, for the number of threads.

    Raises:
        OSError: the file cannot be read.
    """
    buffer, hasher = chunk_buffer(), new_hasher(size_bytes)
    while count := os.readv(descriptor, [buffer]):
        hasher.update(buffer[:count])
    return Digest(hasher.hexdigest())


def require(found: Digest, expected: Digest, where: str) -> None:
    """Refuses content whose digest is not the expected one.

    Raises:
        BlobCorruptError: the digests differ.
    """
    if found != expected:
        raise mismatch(found, expected, where)


def mismatch(found: Digest, expected: Digest, where: str) -> BlobCorruptError:
    """Returns the error for content whose digest is not the expected one."""
    return BlobCorruptError(
        f"the content has digest {found}, not {expected}",
        digest=expected,
        where=where,
        remedy="put the right content again, or run again what produced it",
    )
