"""Many small records in one file that grows: an append for each in place of a file for each.

Every write and every deletion is a frame at the end of the file (sizes in bytes)::

    magic 4 | crc 4 | data size 4 | key size 2 | kind 1 | written, s since the epoch 8 | key | data

The crc is of all that follows it. Where each key's last frame lies is held in memory: a process
reads the file once, and from then on what others have added. Writers of all processes take turns
(``flock``, which the kernel releases when its holder dies), and whoever has the turn first takes in
what is new, so that a condition is checked against all that is there. What a killed writer or a
power cut left torn is stepped over to the next whole frame: it is a record that is not there. When
more than half of the file is of no use any more, what counts is copied to a new one, which is
renamed into place; others see that it is another file and read that.
"""

import contextlib
import errno
import fcntl
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flowmesh_store.files import make_parent, sync_directory
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.ports import Record
from flowmesh_store.sweep import StoredRecord

LARGEST_BYTES = 64 << 20
"""A larger record is refused."""
COMPACT_FROM_BYTES = 16 << 20
"""With less than this of no use the file is left as it is."""

_MAGIC = b"\xffFM1"  # results are UTF-8, which has no such byte
_START = struct.Struct("<4sI")
_HEAD = struct.Struct("<IHBd")
_LEAST_BYTES = _START.size + _HEAD.size
_PUT, _DELETED = 0, 1
_CHUNK_BYTES = 1 << 20
_LENGTH = (1 << 32) - 1


class _Frame(NamedTuple):
    """A whole frame; its etag is its own head, so that no two writes of a key have the same."""

    kind: int
    key: str
    data: bytes
    written_s: float
    etag: str
    length: int


class _File:
    """An open file, closed when nobody refers to it any more."""

    __slots__ = ("descriptor", "inode")

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o666)
        self.inode = os.fstat(self.descriptor).st_ino

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self.descriptor)

    def append(self, data: bytes, size_bytes: int) -> None:
        """Writes at the end, at ``size_bytes``; on an error nothing of it is left behind."""
        try:
            written = os.write(self.descriptor, data)
            while written < len(data):
                written += os.write(self.descriptor, memoryview(data)[written:])
        except BaseException:
            os.ftruncate(self.descriptor, size_bytes)
            raise


class _Turn:
    """Held by one thread of one process at a time."""

    def __init__(self, path: str, mutex: threading.Lock) -> None:
        self._path = path
        self._mutex = mutex
        self._file: _File | None = None

    def __enter__(self) -> None:
        self._mutex.acquire()
        try:
            self.alone()
        except BaseException:
            self._mutex.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.done()
        finally:
            self._mutex.release()

    def alone(self) -> None:
        """Waits until no other process has the turn; whoever calls it holds the mutex."""
        if self._file is None:
            self._file = _File(self._path, os.O_CREAT)
        fcntl.flock(self._file.descriptor, fcntl.LOCK_EX)

    def done(self) -> None:
        """Lets other processes."""
        if self._file is not None:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_UN)


class RecordLog:
    """The records below one folder of a store, in the file ``log`` of that folder.

    Methods raise OSError as the system said it, and may be called from any thread. But for the
    first call, which reads the whole file, and :meth:`delete`, which may copy it, none takes longer
    than a few calls of the system.

    Attributes:
        is_read: that first call is over.
    """

    def __init__(
        self, root: StoreRoot, folder: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Takes the store's directory, the folder's name, and seconds since the epoch."""
        self._root = root
        self._path = root.locate(f"{folder}/log")
        self._clock = clock
        self._mutex = threading.Lock()
        self._turn = _Turn(root.lock_path(folder), self._mutex)
        self._file: _File | None = None
        self._places: dict[str, int] = {}
        """Offset << 32 | length: an int costs half of what a pair does, and no collector looks."""
        self._known_bytes = 0
        self._used_bytes = 0
        self.is_read = False

    def catch_up(self) -> None:
        """Takes in what others have written; the first time all that is there."""
        with self._mutex:
            self._catch_up()

    def read(self, key: str) -> Record | None:
        """The record under this key."""
        with self._mutex:
            self._catch_up()
            frame = self._frame(key)
        return None if frame is None else Record(frame.data, frame.etag)

    def write(self, key: str, data: bytes, *, if_match: str | None, durable: bool) -> str | None:
        """Writes a record if the one in place has this etag, or if there is none.

        Returns:
            The new etag; None where the condition does not hold.
        """
        if len(data) > LARGEST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        with self._turn:
            self._catch_up(alone=True)
            frame = self._frame(key)
            if (None if frame is None else frame.etag) != if_match:
                return None
            file, etag = self._append(_PUT, key, data)
        if durable:
            os.fsync(file.descriptor)
        return etag

    def delete(self, key: str, *, older_than_s: float) -> bool:
        """Deletes a record if it is still at least this old; whether it did."""
        with self._turn:
            self._catch_up(alone=True)
            frame = self._frame(key)
            if frame is None or self._clock() - frame.written_s < older_than_s:
                return False
            self._append(_DELETED, key, b"")
            unused_bytes = self._known_bytes - self._used_bytes
            worth_it = unused_bytes > max(COMPACT_FROM_BYTES, self._used_bytes)
        if worth_it:
            # On a full disk the file stays as it is until a later deletion finds space.
            with contextlib.suppress(OSError):
                self.compact()
        return True

    def aged(self, prefix: str) -> Iterator[StoredRecord]:
        """The records whose keys start with the prefix, in order."""
        with self._mutex:
            self._catch_up()
            keys = list(self._places)
        for key in sorted(key for key in keys if key.startswith(prefix)):
            with self._mutex:
                frame = self._frame(key)
            if frame is not None:
                yield StoredRecord(key, len(frame.data), max(0.0, self._clock() - frame.written_s))

    def compact(self) -> None:
        """Copies what counts to a new file and puts it in the place of this one.

        Others read and write meanwhile; what they add is copied in the end, while they wait.
        """
        with self._mutex:
            self._catch_up()
            old, before = self._file, dict(self._places)
        if old is None:
            return
        path = self._root.temporary_path()
        new = _File(path, os.O_CREAT | os.O_EXCL | os.O_APPEND)
        try:
            size, places = _copied(old, new, before, 0)
            os.fsync(new.descriptor)
            with self._turn:
                self._catch_up(alone=True)
                if self._file is not old:
                    return  # another process was first
                added = {k: place for k, place in self._places.items() if before.get(k) != place}
                size, later = _copied(old, new, added, size)
                for key in before.keys() - self._places.keys():
                    del places[key]
                    gone = _encoded(_DELETED, key, b"", self._clock())
                    new.append(gone, size)
                    size += len(gone)
                os.fsync(new.descriptor)
                os.rename(path, self._path)
                self._file, self._known_bytes, self._places = new, size, places | later
                self._used_bytes = sum(place & _LENGTH for place in self._places.values())
            sync_directory(self._path)
        finally:
            self._root.remove(path)

    def _catch_up(self, *, alone: bool = False) -> None:
        try:
            status = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self._begin_with(None)
            self.is_read = True
            return
        file, size = self._file, status.st_size
        if file is None or file.inode != status.st_ino or size < self._known_bytes:
            file = _File(self._path, os.O_APPEND)
            self._begin_with(file)
            size = os.fstat(file.descriptor).st_size
        if size > self._known_bytes:
            self._scan(file, size, over_torn=alone)
            if self._known_bytes < size and not alone:
                self._scan_alone(file)
        self.is_read = True

    def _begin_with(self, file: _File | None) -> None:
        self._file, self._places, self._known_bytes, self._used_bytes = file, {}, 0, 0

    def _scan_alone(self, file: _File) -> None:
        """What is not whole is being written or was torn: nobody writes while we have the turn."""
        self._turn.alone()
        try:
            self._scan(file, os.fstat(file.descriptor).st_size, over_torn=True)
        finally:
            self._turn.done()

    def _scan(self, file: _File, size: int, *, over_torn: bool) -> None:
        """Takes in the frames up to a size; stops before what is not whole, or steps over it."""
        want = _CHUNK_BYTES
        while self._known_bytes < size:
            start = self._known_bytes
            chunk = os.pread(file.descriptor, min(want, size - start), start)
            want, at = _CHUNK_BYTES, 0
            while frame := _parsed(chunk, at):
                self._enter(frame.kind, frame.key, start + at, frame.length)
                at += frame.length
            self._known_bytes = start + at
            if at:
                continue
            if len(chunk) < _length_at(chunk, 0) <= size - start:
                want = _length_at(chunk, 0)
            elif over_torn:
                following = chunk.find(_MAGIC, 1)
                past = len(chunk) if start + len(chunk) >= size else len(chunk) - len(_MAGIC) + 1
                self._known_bytes = start + (following if following > 0 else past)
            else:
                return

    def _enter(self, kind: int, key: str, offset: int, length: int) -> None:
        self._used_bytes -= self._places.pop(key, 0) & _LENGTH
        if kind == _PUT:
            self._places[key] = offset << 32 | length
            self._used_bytes += length

    def _frame(self, key: str) -> _Frame | None:
        """The whole frame of a key; None too where the disk has spoiled it since it was read."""
        place = self._places.get(key)
        if place is None or self._file is None:
            return None
        frame = _parsed(os.pread(self._file.descriptor, place & _LENGTH, place >> 32), 0)
        return None if frame is None or frame.key != key else frame

    def _append(self, kind: int, key: str, data: bytes) -> tuple[_File, str]:
        file = self._file
        if file is None:
            make_parent(self._path)
            file = self._file = _File(self._path, os.O_CREAT | os.O_APPEND)
            sync_directory(self._path)
        frame = _encoded(kind, key, data, self._clock())
        file.append(frame, self._known_bytes)
        self._enter(kind, key, self._known_bytes, len(frame))
        self._known_bytes += len(frame)
        return file, _etag_at(frame, 0)


def _encoded(kind: int, key: str, data: bytes, written_s: float) -> bytes:
    name = key.encode()
    rest = _HEAD.pack(len(data), len(name), kind, written_s) + name + data
    return _START.pack(_MAGIC, zlib.crc32(rest)) + rest


def _etag_at(chunk: bytes, at: int) -> str:
    return chunk[at + len(_MAGIC) : at + _LEAST_BYTES].hex()


def _length_at(chunk: bytes, at: int) -> int:
    """How long the frame here says that it is; 0 where none begins."""
    if len(chunk) - at < _LEAST_BYTES or not chunk.startswith(_MAGIC, at):
        return 0
    data_bytes, key_bytes, _, _ = _HEAD.unpack_from(chunk, at + _START.size)
    return int(_LEAST_BYTES + key_bytes + data_bytes) if data_bytes <= LARGEST_BYTES else 0


def _parsed(chunk: bytes, at: int) -> _Frame | None:
    """The whole frame here; None where there is none."""
    length = _length_at(chunk, at)
    end = at + length
    if not length or len(chunk) < end:
        return None
    _, crc = _START.unpack_from(chunk, at)
    if zlib.crc32(memoryview(chunk)[at + _START.size : end]) != crc:
        return None
    _, key_bytes, kind, written_s = _HEAD.unpack_from(chunk, at + _START.size)
    data_at = at + _LEAST_BYTES + key_bytes
    key = chunk[at + _LEAST_BYTES : data_at].decode()
    return _Frame(kind, key, chunk[data_at:end], written_s, _etag_at(chunk, at), length)


def _copied(
    old: _File, new: _File, places: dict[str, int], size: int
) -> tuple[int, dict[str, int]]:
    """Appends frames to a new file of this size, in the order they have; size and places after."""
    copied = dict[str, int]()
    for key, place in sorted(places.items(), key=lambda item: item[1]):
        length = place & _LENGTH
        new.append(os.pread(old.descriptor, length, place >> 32), size)
        copied[key] = size << 32 | length
        size += length
    return size, copied
