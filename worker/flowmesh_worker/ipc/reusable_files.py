"""Files in memory that a trusted host writes again, once their last value has no reader.

New pages take most of the time of a large value, and a sealed file cannot be written twice. A
reusable file is mapped by its producer and then sealed against growing, shrinking and all further
writers, so that nobody else can change it. Its value is sent with a lock that lives as long as
somebody can read it (:mod:`file_locks`); no reader has to report anything. Code that is not trusted
gets a value only after the file was given a last seal, and such a file is not written again.
"""

import contextlib
import fcntl
import mmap
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from flowmesh_worker.ipc.file_locks import is_read, lock_while_read, mark_owned, reopened
from flowmesh_worker.ipc.memory_mapping import MemoryMapping
from flowmesh_worker.ipc.shared_value import REUSABLE_SEALS, SharedValue, has_ended_reuse

FILES_BYTES_MAX = 256 << 20
"""All files of a process, those with readers too; beyond, a value is in a sealed file."""
READY_BYTES_MAX = 33 << 20
"""Files that have no reader and are kept for the next values: two of 16 MiB with their headers."""
FILES_MAX = 128
_TRIES = 8
"""Files of a size that one value asks for their readers."""
_UNUSED_ROUNDS_MAX = 64
_SIZES_PER_DOUBLING_BITS = 3


class _ReusableFile:
    """One file.

    Attributes:
        size: bytes.
        used_in: the round of its last value.
    """

    def __init__(self, size: int, used_in: int) -> None:
        """Creates it, with its memory.

        Raises:
            OSError: the kernel refuses to create it, or there is no memory for it.
        """
        self._file = SharedValue.spare(size)
        self._mapping = MemoryMapping(self._file.fileno(), size, is_writable=True)
        fcntl.fcntl(self._file.fileno(), fcntl.F_ADD_SEALS, REUSABLE_SEALS)
        mark_owned(self._file.fileno())
        self._written_bytes = 0
        self.size = size
        self.used_in = used_in

    @property
    def is_ended(self) -> bool:
        """Whether it must not be written again."""
        return has_ended_reuse(self._file.fileno())

    @property
    def is_free(self) -> bool:
        """Whether its last value has no reader."""
        return not is_read(self._file.fileno())

    def write(self, parts: Sequence[bytes | memoryview]) -> SharedValue:
        """Returns a value with these bytes; behind it the file has zeros.

        Raises:
            OSError: this process has too many files open.
        """
        size = sum(map(len, parts))
        descriptor = reopened(self._file.fileno())
        value = SharedValue(descriptor, size, is_sealed=False, is_reusable=True)
        lock_while_read(descriptor)
        pages, at = self._mapping.view(), 0
        for part in (*parts, bytes(max(0, self._written_bytes - size))):
            pages[at : at + len(part)] = part
            at += len(part)
        self._written_bytes = size
        return value


class ReusableFiles:
    """The files of one process."""

    def __init__(self) -> None:
        self._files: defaultdict[int, deque[_ReusableFile]] = defaultdict(deque)
        self._count = self._bytes = self._round = 0
        self._ended: Counter[int] = Counter()
        self._is_used = self._has_no_room = False

    def value_of(self, parts: Sequence[bytes | memoryview]) -> SharedValue:
        """Returns a value with these bytes, one part after the other.

        Raises:
            OSError: the kernel refuses to create a file, or there is no memory for it.
        """
        file_bytes = file_bytes_of(sum(map(len, parts)))
        self._is_used = True
        with contextlib.suppress(OSError):
            file = self._free(file_bytes) or self._created(file_bytes)
            if file is not None:
                file.used_in = self._round
                return file.write(parts)
        return SharedValue.sealed(parts)

    @property
    def is_used(self) -> bool:
        """Whether values were made since the last time."""
        return self._is_used

    def prepare(self) -> None:
        """Drops what is not needed, and prepares files in place of those that ended.

        Others need none: each value that found no free file has left one more.
        """
        self._round += 1
        self._is_used = self._has_no_room = False
        left = READY_BYTES_MAX - self._drop_unneeded()
        ended, self._ended = self._ended, Counter()
        for size, count in ended.items():
            for _ in range(count):
                if size <= left and self._fits(size):
                    left -= size
                    with contextlib.suppress(OSError):  # then the value makes its own
                        self._create(size)

    def _free(self, file_bytes: int) -> _ReusableFile | None:
        """Returns a file of this size that may be written: the last one, if it is free again."""
        files = self._files[file_bytes]
        for _ in range(min(len(files), _TRIES)):
            file = files[0]
            # Asked first: a file gets its last seal while its reader has the lock, and the code
            # that is given it may end the lock between two looks.
            is_free = file.is_free
            if file.is_ended:
                self._drop_ended(file)
            elif is_free:
                return file
            else:
                files.rotate(-1)
        return None

    def _created(self, file_bytes: int) -> _ReusableFile | None:
        """Returns a new file; None where the bounds leave no room."""
        if not self._fits(file_bytes) and not self._has_no_room:
            for file in sorted(self._all(), key=lambda file: file.used_in):
                if file.is_ended:
                    self._drop_ended(file)
                elif file.is_free:
                    self._drop(file)
                if self._fits(file_bytes):
                    break
        self._has_no_room = not self._fits(file_bytes)
        return None if self._has_no_room else self._create(file_bytes)

    def _fits(self, file_bytes: int) -> bool:
        return self._count < FILES_MAX and self._bytes + file_bytes <= FILES_BYTES_MAX

    def _create(self, file_bytes: int) -> _ReusableFile:
        file = _ReusableFile(file_bytes, self._round)
        self._files[file_bytes].appendleft(file)
        self._count += 1
        self._bytes += file_bytes
        return file

    def _drop(self, file: _ReusableFile) -> None:
        """Keeps a file no more; who reads its value goes on."""
        self._files[file.size].remove(file)
        self._count -= 1
        self._bytes -= file.size

    def _drop_ended(self, file: _ReusableFile) -> None:
        self._drop(file)
        self._ended[file.size] += 1

    def _drop_unneeded(self) -> int:
        """Drops files that ended or were not used for long; returns the bytes of free ones."""
        ready_bytes = 0
        for file in sorted(self._all(), key=lambda file: -file.used_in):
            if file.is_ended:
                self._drop_ended(file)
            elif file.is_free:
                is_old = self._round - file.used_in > _UNUSED_ROUNDS_MAX
                if is_old or ready_bytes + file.size > READY_BYTES_MAX:
                    self._drop(file)
                else:
                    ready_bytes += file.size
        return ready_bytes

    def _all(self) -> Iterator[_ReusableFile]:
        return (file for files in self._files.values() for file in list(files))


def file_bytes_of(size: int) -> int:
    """Returns the size of a file for a value: up to an eighth more, so that values share sizes.

    A header beside a power of two is in the page that each file has more.
    """
    rest = max(size - mmap.PAGESIZE, mmap.PAGESIZE)
    step = max(mmap.PAGESIZE, 1 << max(0, rest.bit_length() - 1 - _SIZES_PER_DOUBLING_BITS))
    return -(-rest // step) * step + mmap.PAGESIZE
