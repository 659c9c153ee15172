"""Remembers which chunks were compared with their identity, so that each is compared once.

The agent tells engine hosts which chunks need no comparison, and adds what they report. The memory
is a file of sets of eight entries. The entry of a chunk is a MAC over its blob, its row digest, its
number of rows, its schema and the scopes of its reader, with a key of this file: how long a read
takes shows nobody what readers of other scopes have read. Whatever a crash or a bad disk leaves in
it is no such MAC, and so no entry. The least recently used entry of a set gives way.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from blake3 import blake3

from flowmesh_core.dataset import ChunkRef, Manifest

ENTRIES = 1 << 20
_ENTRY_BYTES = 16
_WAYS = 8
_SET_BYTES = _WAYS * _ENTRY_BYTES
_SETS = ENTRIES // _WAYS
_MAGIC = b"flowmesh chunks\n"
_KEY_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + _KEY_BYTES
_FILE_BYTES = _HEADER_BYTES + _SETS * _SET_BYTES


class VerifiedChunks:
    """The chunks of a worker whose rows were compared with their identity.

    A file that cannot be read or written is as good as an empty one.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file; one that is missing, or not such a file, begins empty.

        Args:
            path: used by this object alone.
        """
        self._file = -1
        self._key = os.urandom(_KEY_BYTES)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            header = os.pread(self._file, _HEADER_BYTES, 0)
            if header.startswith(_MAGIC) and os.fstat(self._file).st_size == _FILE_BYTES:
                self._key = header[len(_MAGIC) :]
            else:
                os.ftruncate(self._file, 0)
                os.ftruncate(self._file, _FILE_BYTES)  # sparse: entries take disk as they come
                os.pwrite(self._file, _MAGIC + self._key, 0)
        except OSError:
            self.close()

    def numbers(self, manifest: Manifest, scopes: Sequence[str]) -> tuple[int, ...]:
        """Returns the numbers of a data set's chunks that need no comparison for these scopes."""
        entries = self._entries(manifest.chunks, manifest, scopes)
        return tuple(n for n, entry in enumerate(entries) if self._renew(entry, known=True))

    def add(self, manifest: Manifest, numbers: Iterable[int], scopes: Sequence[str]) -> None:
        """Remembers chunks of a data set, by their numbers, for readers of these scopes."""
        for entry in self._entries([manifest.chunks[n] for n in numbers], manifest, scopes):
            self._renew(entry, known=False)

    def close(self) -> None:
        """Closes the file; nothing is remembered any more."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _entries(
        self, chunks: Iterable[ChunkRef], manifest: Manifest, scopes: Sequence[str]
    ) -> list[bytes]:
        common = msgspec.msgpack.encode([manifest.schema, list(scopes)])
        schema = blake3(common, key=self._key)
        found = []
        for chunk in chunks:
            mac = schema.copy()
            mac.update(f"{chunk.blob} {chunk.rows} {chunk.count}".encode())
            found.append(mac.digest(_ENTRY_BYTES))
        return found

    def _renew(self, entry: bytes, *, known: bool) -> bool:
        """Moves an entry to the front of its set; returns whether it was there.

        Args:
            entry: of a chunk.
            known: whether to leave it out if it is not there.
        """
        place = _HEADER_BYTES + int.from_bytes(entry[:4]) % _SETS * _SET_BYTES
        try:
            found = os.pread(self._file, _SET_BYTES, place)
            entries = [found[i : i + _ENTRY_BYTES] for i in range(0, _SET_BYTES, _ENTRY_BYTES)]
            is_there = entry in entries
            if entries[0] != entry and (is_there or not known):
                others = [e for e in entries if e != entry]
                os.pwrite(self._file, b"".join([entry, *others])[:_SET_BYTES], place)
        except OSError:
            return False
        return is_there
