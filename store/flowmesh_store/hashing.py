"""blake3-256 of content: one spelling for every backend and for the engines that hash outputs."""

import os
import threading
from pathlib import Path

from blake3 import blake3

from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.units import Digest

CHUNK_BYTES = 1 << 20
"""The piece in which files are read, hashed and written: stays in the second-level cache."""

_buffers = threading.local()
_THREADS_FROM_BYTES = 64 << 20
_THREADS_FROM_CORES = 4


def digest_of(data: bytes | bytearray | memoryview) -> Digest:
    """The digest of bytes in memory."""
    return Digest(blake3(data).hexdigest())


def new_hasher(expected_bytes: int = 0) -> blake3:
    """A hasher to feed piece by piece.

    Several threads pay only for large content on machines with cores to spare; below that they
    cost more than they bring (one thread hashes 3.5 GiB/s, more than most disks read).

    Args:
        expected_bytes: the size of the content where it is known; 0 where not.
    """
    many = expected_bytes >= _THREADS_FROM_BYTES and (os.cpu_count() or 1) >= _THREADS_FROM_CORES
    return blake3(max_threads=blake3.AUTO if many else 1)


def chunk_buffer() -> memoryview:
    """This thread's buffer of :data:`CHUNK_BYTES`, to be done with before the next call.

    A new one each time would cost more than copying a small file: its pages are zeroed on demand.
    """
    if not hasattr(_buffers, "chunk"):
        _buffers.chunk = memoryview(bytearray(CHUNK_BYTES))
    chunk: memoryview = _buffers.chunk
    return chunk


def digest_of_file(path: Path) -> Digest:
    """Hashes a file in one pass, without holding it in memory.

    Raises:
        OSError: the file cannot be read.
    """
    buffer = chunk_buffer()
    with path.open("rb", buffering=0) as source:
        hasher = new_hasher(os.fstat(source.fileno()).st_size)
        while count := source.readinto(buffer):
            hasher.update(buffer[:count])
    return Digest(hasher.hexdigest())


def require(found: Digest, expected: Digest, where: str) -> None:
    """Refuses content that has another digest than it is called by.

    Raises:
        BlobCorruptError: the digests differ.
    """
    if found != expected:
        raise mismatch(found, expected, where)


def mismatch(found: Digest, expected: Digest, where: str) -> BlobCorruptError:
    """The error for content that has another digest than it is called by."""
    return BlobCorruptError(
        f"the content has digest {found}, not {expected}",
        digest=expected,
        where=where,
        remedy="put the right content again, or run again what produced it",
    )
