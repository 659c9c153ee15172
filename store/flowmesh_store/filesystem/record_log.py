"""A log of many small records in one file: writing a record is an append, not a new file (ADR 21).

Every write and every deletion is a frame (``record_frames``). Each process keeps an index of the
keys in memory: it reads the file once, and from then on only the frames that other processes have
appended.

The life of a frame:

1. *Append.* A writer takes the file's ``flock``, which excludes the other processes and which the
   kernel releases if the writer dies. It first reads the frames that are new, so that it checks its
   condition against everything in the file; then it appends. Without that read two processes could
   both find no record and both publish. A frame that a killed writer or a power cut left torn, or
   that the disk damaged, is skipped up to the next whole frame: its record is missing. Marks begin
   with a byte that UTF-8 never has, and records are text, so no record can look like a frame.
   (``test_three_killed_processes_that_write_delete_and_compact_lose_no_confirmed_record``)
2. *Dead frame.* When a record is replaced or deleted, its old frame's mark is overwritten in place.
   Appending alone would not do: if the newer frame is damaged later, the old one would become
   valid again. It also makes a deletion possible on a full disk, where nothing can be appended.
   (``test_a_replaced_or_deleted_record_does_not_return_when_the_newest_one_is_damaged``,
   ``test_deletions_take_effect_on_a_full_disk``)
3. *Compaction.* When more than half of the file is dead, the living frames are copied to a new
   file, which is renamed into place; other processes notice the new inode and read it. The copy is
   made without the lock, since it may take seconds. What others append, replace or delete
   meanwhile is therefore compared under the lock at the end: changed keys are copied again, and
   deleted keys get a deletion frame. Of two processes that compact at once, the second finds
   another file in place and discards its copy. A reader may also find a frame dead that was
   replaced since it looked up the key; it then reads the new frames and looks again.
   (``test_changes_that_others_make_during_a_compaction_are_preserved``,
   ``test_of_two_concurrent_compactions_the_second_is_skipped``,
   ``test_a_record_that_is_replaced_while_it_is_read_is_found``)
"""

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator

from flowmesh_store.atomic_files import sync_directory
from flowmesh_store.collection.sweep import StoredRecord
from flowmesh_store.filesystem.record_frames import (
    ANY,
    DEAD,
    DELETED,
    PUT,
    Frame,
    encoded,
    etag_at,
    length_at,
    parsed,
)
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.ports import Record

COMPACT_FROM_BYTES = 4 << 20
"""The file is not compacted for less than this many dead bytes."""
QUICK_BYTES = 64 << 10
"""The most bytes that a call with ``wait`` false reads or writes."""

_CHUNK_BYTES = 1 << 20
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PAGE_BYTES = 4096
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_LENGTH = (1 << 32) - 1


class _File:
    """An open file, which is closed when it is garbage-collected."""

    __slots__ = ("descriptor", "identity", "pid", "writable")

    def __init__(self, path: str, flags: int = 0, *, to_read: bool = False) -> None:
        self.writable = True
        try:
            self.descriptor = os.open(path, flags | _OPEN_FLAGS | os.O_RDWR, 0o666)
        except OSError as error:
            if not to_read or error.errno not in _REFUSED:
                raise
            self.descriptor = os.open(path, _OPEN_FLAGS | os.O_RDONLY)
            self.writable = False
        status = os.fstat(self.descriptor)
        self.identity = status.st_dev, status.st_ino
        self.pid = os.getpid()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            os.close(self.descriptor)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Reads a part of the file; pages that the disk cannot read are returned as zeros."""
        try:
            return os.pread(self.descriptor, size_bytes, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        if size_bytes <= _PAGE_BYTES:
            return bytes(size_bytes)
        pages = range(offset, offset + size_bytes, _PAGE_BYTES)
        return b"".join(self.read(p, min(_PAGE_BYTES, offset + size_bytes - p)) for p in pages)

    def append(self, data: bytes, size_bytes: int) -> None:
        """Writes at the end, at ``size_bytes``; on an error the file is truncated again."""
        try:
            written = os.pwrite(self.descriptor, data, size_bytes)
            while written < len(data):
                rest = memoryview(data)[written:]
                written += os.pwrite(self.descriptor, rest, size_bytes + written)
        except OSError:
            os.ftruncate(self.descriptor, size_bytes)
            raise


class RecordLog:
    """The records below one folder of a store, in the file ``log`` of that folder.

    Methods may be called from any thread, and raise the system's OSError. With ``wait`` false they
    raise BlockingIOError without any effect, if another thread or process has the lock, much must
    be read or written, or the disk must be waited for. An event loop calls them so, and then again
    in a thread.
    """

    def __init__(
        self, root: StoreRoot, folder: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Keeps the arguments; nothing is read.

        Args:
            root: the store's directory.
            folder: below it.
            clock: Unix time in seconds.
        """
        self._root = root
        self._folder = root.locate(folder)
        self._path = f"{self._folder}/log"
        self._clock = clock
        self._mutex = threading.Lock()
        self._serial = itertools.count(int.from_bytes(os.urandom(7)))
        self._file: _File | None = None
        self._locked: _File | None = None
        self._places: dict[str, int] = {}
        """Offset << 32 | length: an int takes half of a tuple's memory, and no gc walks it."""
        self._known_bytes = 0
        self._used_bytes = 0
        self._compact_from_bytes = COMPACT_FROM_BYTES

    def read(self, key: str, *, wait: bool = True) -> Record | None:
        """Returns the record of a key, or None."""
        self._acquire(wait)
        try:
            self._catch_up(wait)
            if not wait and self._places.get(key, 0) & _LENGTH > QUICK_BYTES:
                raise _busy()
            frame = self._current_frame(key, wait)
        finally:
            self._mutex.release()
        return None if frame is None else Record(frame.data, frame.etag)

    def write(
        self, key: str, data: bytes, *, if_match: str | None, durable: bool, wait: bool = True
    ) -> str | None:
        """Writes a record if the existing one has this etag, or if there is none.

        Args:
            key: of the record.
            data: text in UTF-8.
            if_match: the etag; None means that the record must not exist.
            durable: sync it to the disk.
            wait: see the class.

        Returns:
            The new etag; None where the condition does not hold.
        """
        if not wait and (durable or len(data) > QUICK_BYTES):
            raise _busy()
        self._begin_write(wait)
        try:
            frame = self._frame(key)
            if (None if frame is None else frame.etag) != if_match:
                return None
            replaced = self._places.get(key)
            file, etag = self._append(PUT, key, data)
            if replaced is not None:
                self._mark_dead(file, replaced)
        finally:
            self._end_write()
        if durable:
            os.fsync(file.descriptor)
        return etag

    def delete(self, key: str, *, older_than_s: float) -> bool:
        """Deletes a record if it is still at least this old; returns whether it did."""
        self._begin_write(wait=True)
        try:
            frame = self._frame(key)
            if frame is None or self._clock() - frame.written_s < older_than_s:
                return False
            if self._file is not None:
                self._mark_dead(self._file, self._places[key])
            # A full disk loses only this frame. The record's own frame is already dead, so readers
            # skip it.
            with contextlib.suppress(OSError):
                self._append(DELETED, key, b"")
            self._forget(key)
            unused_bytes = self._known_bytes - self._used_bytes
        finally:
            self._end_write()
        if unused_bytes > max(self._compact_from_bytes, self._used_bytes):
            self._try_to_compact(unused_bytes)
        return True

    def aged(self, prefix: str) -> Iterator[StoredRecord]:
        """Yields the records whose keys start with the prefix, in order."""
        with self._mutex:
            self._catch_up(wait=True)
            keys = list(self._places)
        for key in sorted(key for key in keys if key.startswith(prefix)):
            with self._mutex:
                frame = self._current_frame(key, wait=True)
            if frame is not None:
                yield StoredRecord(key, len(frame.data), max(0.0, self._clock() - frame.written_s))

    def compact(self) -> None:
        """Copies the living frames to a new file, which replaces this one.

        Other processes read and write meanwhile; their changes are copied at the end, while they
        wait for the lock. See the module for the races.
        """
        with self._mutex:
            self._catch_up(wait=True)
            old, before = self._file, dict(self._places)
        if old is None:
            return
        path = self._root.temporary_path()
        new = _File(path, os.O_CREAT | os.O_EXCL)
        try:
            _copy_owner(old, new)
            size, places = _copy_frames(old, new, before, 0)
            os.fsync(new.descriptor)
            self._begin_write(wait=True)
            try:
                if self._file is not old:
                    return  # another process was first
                added = {k: place for k, place in self._places.items() if before.get(k) != place}
                size, later = _copy_frames(old, new, added, size)
                for key in places.keys() & later.keys():
                    self._mark_dead(new, places[key])
                places |= later
                for key in places.keys() - self._places.keys():
                    del places[key]
                    marker = encoded(DELETED, key, b"", self._clock(), next(self._serial))
                    new.append(marker, size)
                    size += len(marker)
                os.fsync(new.descriptor)
                os.rename(path, self._path)
                sync_directory(self._path)
                self._switch_to(new)
                self._places, self._known_bytes = places, size
                self._used_bytes = sum(place & _LENGTH for place in places.values())
            finally:
                self._end_write()
        finally:
            self._root.remove(path)

    def _try_to_compact(self, unused_bytes: int) -> None:
        """Compacts; if the disk has no space for the copy, the next try must save more."""
        try:
            self.compact()
        except OSError:
            self._compact_from_bytes = unused_bytes + COMPACT_FROM_BYTES
        else:
            self._compact_from_bytes = COMPACT_FROM_BYTES

    def _acquire(self, wait: bool) -> None:
        if not self._mutex.acquire(blocking=wait):
            raise _busy()

    def _begin_write(self, wait: bool) -> None:
        """Locks out other writers until :meth:`_end_write`, and reads what they have written."""
        self._acquire(wait)
        try:
            if wait:
                self._catch_up(wait)  # before the lock, so that it is held for a short time only
            while not self._lock(self._writable_file(wait), wait):
                self._switch_to(None)
        except BaseException:
            self._mutex.release()
            raise

    def _end_write(self) -> None:
        try:
            self._unlock()
        finally:
            self._mutex.release()

    def _writable_file(self, wait: bool) -> _File:
        """Returns the file, open for writing; creates it if it is missing."""
        current = self._file
        if current is not None and current.pid == os.getpid() and current.writable:
            return current
        if not wait:
            raise _busy()
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._folder)
            sync_directory(self._folder)
        self._switch_to(_File(self._path, os.O_CREAT))
        sync_directory(self._path)
        return self._writable_file(wait)

    def _lock(self, file: _File, wait: bool) -> bool:
        """Locks the file; returns False, and unlocks it, if another file has replaced it."""
        fcntl.flock(file.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        self._locked = file
        try:
            status = self._status()
            if status is not None and file.identity == (status.st_dev, status.st_ino):
                self._read_frames(file, status.st_size, wait, alone=True)
                return True
        except BaseException:
            self._unlock()
            raise
        self._unlock()
        return False

    def _unlock(self) -> None:
        if self._locked is not None:
            fcntl.flock(self._locked.descriptor, fcntl.LOCK_UN)
            self._locked = None

    def _status(self) -> os.stat_result | None:
        try:
            return os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _catch_up(self, wait: bool) -> None:
        while status := self._status():
            file, size = self._file, status.st_size
            if file is None or file.identity != (status.st_dev, status.st_ino):
                file = _File(self._path, to_read=True)
                self._switch_to(file)
                size = os.fstat(file.descriptor).st_size
            self._read_frames(file, size, wait, alone=False)
            if self._known_bytes >= size:
                return
            if self._lock(file, wait):
                self._unlock()
                return
        self._switch_to(None)

    def _switch_to(self, file: _File | None) -> None:
        self._file, self._places, self._known_bytes, self._used_bytes = file, {}, 0, 0

    def _read_frames(self, file: _File, size: int, wait: bool, *, alone: bool) -> None:
        """Reads the frames up to a size into the index.

        Damaged bytes are skipped if whole frames follow. At the end they may be a frame that
        another process is writing, so they are left for the next call, unless ``alone``: this
        process then has the lock.
        """
        if size < self._known_bytes:  # another process has truncated it
            self._switch_to(file)
        if not wait and size - self._known_bytes > QUICK_BYTES:
            raise _busy()
        at, torn, want = self._known_bytes, -1, _CHUNK_BYTES
        while at < size:
            asked = min(want, size - at)
            chunk = file.read(at, asked)
            if len(chunk) < asked:  # another process truncates it
                return
            want, start = _CHUNK_BYTES, at
            while frame := parsed(chunk, at - start):
                self._index_frame(frame, at)
                at += frame.length
            if at > start:
                self._known_bytes, torn = at, -1
            elif asked < length_at(chunk, 0) <= size - at:
                want = length_at(chunk, 0)
            else:
                torn = at if torn < 0 else torn
                following = chunk.find(ANY, 1)
                past = asked if at + asked == size else asked - len(ANY) + 1
                at += following if following > 0 else past
        self._known_bytes = size if torn < 0 or alone else torn

    def _index_frame(self, frame: Frame, offset: int) -> None:
        """Indexes a frame, even a dead one.

        The frame that replaced it may be beyond the size at which this read stops; a lookup then
        finds the frame dead and reads on, instead of reporting the key as missing.
        """
        self._forget(frame.key)
        if frame.kind == PUT:
            self._places[frame.key] = offset << 32 | frame.length
            self._used_bytes += frame.length

    def _forget(self, key: str) -> None:
        self._used_bytes -= self._places.pop(key, 0) & _LENGTH

    def _current_frame(self, key: str, wait: bool) -> Frame | None:
        """Returns the frame of a key without the lock; looks again if it was replaced meanwhile."""
        while True:
            file, place, frame = self._file, self._places.get(key), self._frame(key)
            if frame is not None or place is None:
                return frame
            self._catch_up(wait)
            if self._file is file and self._places.get(key) == place:
                return None

    def _frame(self, key: str) -> Frame | None:
        """Returns the frame of a key; None where it is missing, dead by now, or damaged."""
        place = self._places.get(key)
        if place is None or self._file is None:
            return None
        frame = parsed(self._file.read(place >> 32, place & _LENGTH), 0)
        return frame if frame is not None and frame.alive and frame.key == key else None

    def _append(self, kind: int, key: str, data: bytes) -> tuple[_File, str]:
        file = self._file
        if file is None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        frame = encoded(kind, key, data, self._clock(), next(self._serial))
        file.append(frame, self._known_bytes)
        self._forget(key)
        if kind == PUT:
            self._places[key] = self._known_bytes << 32 | len(frame)
            self._used_bytes += len(frame)
        self._known_bytes += len(frame)
        return file, etag_at(frame, 0)

    @staticmethod
    def _mark_dead(file: _File, place: int) -> None:
        os.pwrite(file.descriptor, DEAD, place >> 32)


def _busy() -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _copy_owner(old: _File, new: _File) -> None:
    """Gives the new file the owner and mode of the old one, as far as permitted."""
    status = os.fstat(old.descriptor)
    with contextlib.suppress(PermissionError):
        os.fchown(new.descriptor, status.st_uid, status.st_gid)
    with contextlib.suppress(PermissionError):
        os.fchmod(new.descriptor, stat.S_IMODE(status.st_mode))


def _copy_frames(
    old: _File, new: _File, places: dict[str, int], size: int
) -> tuple[int, dict[str, int]]:
    """Appends living frames to a new file of this size, in their order.

    Returns:
        The new size, and the places of the copied frames.
    """
    copied = dict[str, int]()
    for key, place in sorted(places.items(), key=lambda item: item[1]):
        content = old.read(place >> 32, place & _LENGTH)
        frame = parsed(content, 0)
        if frame is not None and frame.alive:
            new.append(content, size)
            copied[key] = size << 32 | frame.length
            size += frame.length
    return size, copied
