"""The owner of a state folder: the one process that serves it, recorded in ``.flowmesh/owner``.

The owner has an exclusive lock on the file while it lives; the kernel releases it however the
process dies, so an unlocked file is stale. Commands that use the fabric have a shared lock on
``.flowmesh/joined``: the owner of a ``fmesh run`` exits when it gets an exclusive lock on it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_core.decoding import decode
from flowmesh_core.errors import StoreAccessError, StoreError, StoreFullError
from flowmesh_store.os_errors import store_error

_READ_TIMEOUT_S = 2.0
_POLL_S = 0.02


class OwnerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the owner file.

    Attributes:
        url: the API's address; empty while the owner starts.
        token: the API's token; workers join with ``worker_token``.
        port: the API's port, written before it is served: workers of a killed owner wait there.
        serves: ``up`` until stopped, ``run`` until all runs that joined have ended, ``read`` for
            one query.
        workers: process ids of the local workers, by name.
    """

    pid: int
    url: str = ""
    port: int = 0
    token: str = ""
    worker_token: str = ""
    serves: str = "run"
    started_s: float = 0.0
    workers: dict[str, int] = {}


class Ownership:
    """This process's lock on the owner file."""

    def __init__(self, lock: "_LockFile", previous: OwnerRecord | None) -> None:
        """Wraps a locked file; ``previous`` is the record that a dead owner left in it."""
        self._lock = lock
        self.previous = previous

    def write(self, owner: OwnerRecord) -> None:
        """Writes the owner's record.

        Raises:
            StoreError: the folder is full or read-only.
        """
        self._write(msgspec.json.format(msgspec.json.encode(owner)) + b"\n")

    def release(self, *, leave: OwnerRecord | None = None) -> None:
        """Unlocks the file, empty or with a record that names orphaned workers."""
        with contextlib.suppress(StoreError):
            if leave is None:
                self._write(b"")
            else:
                self.write(leave)
        self._lock.close()

    def _write(self, data: bytes) -> None:
        if self._lock.refusal is not None:
            raise self._lock.refusal
        descriptor = self._lock.descriptor
        try:
            os.pwrite(descriptor, data, 0)  # on a full disk the old content remains
            os.ftruncate(descriptor, len(data))
        except OSError as e:
            raise store_error(e, str(self._lock.path)) from e


def claim(state: StateDir, *, to_read: bool = False) -> Ownership | None:
    """Becomes the owner; returns None where another process is.

    Args:
        state: the folder.
        to_read: whether a folder that cannot be written is acceptable.

    Raises:
        StoreError: the folder is full or read-only.
    """
    lock = _LockFile(state.owner)
    if not lock.take(fcntl.LOCK_EX):
        lock.close()
        return None
    if lock.refusal is None:
        os.fchmod(lock.descriptor, 0o600)
    elif not to_read:
        lock.close()
        raise lock.refusal
    return Ownership(lock, _decode(state.owner))


def current(state: StateDir) -> OwnerRecord | None:
    """Returns the living owner, or None. Waits a moment for one that is starting."""
    end = time.monotonic() + _READ_TIMEOUT_S
    while _is_locked(state.owner):
        owner = _decode(state.owner)
        if owner is not None:
            return owner
        if time.monotonic() > end:
            return None
        time.sleep(_POLL_S)
    return None


@dataclass(slots=True)
class JoinLock:
    """A shared lock on ``joined``, during which the owner does not exit."""

    descriptor: int

    def __enter__(self) -> "JoinLock":
        """Returns itself; the lock was taken before."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Releases the lock."""
        self.release()

    def release(self) -> None:
        """Releases the lock; may be called more than once."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def join(state: StateDir) -> JoinLock | None:
    """Locks ``joined``, so that the owner does not exit; returns None where it is exiting."""
    lock = _LockFile(state.joined)
    if lock.take(fcntl.LOCK_SH):
        return JoinLock(lock.descriptor)
    lock.close()
    return None


@contextlib.contextmanager
def no_other_users(state: StateDir) -> Iterator[bool]:
    """Yields whether no other process uses the fabric; if so, none can join during the block."""
    lock = _LockFile(state.joined)
    try:
        yield lock.take(fcntl.LOCK_EX)
    finally:
        lock.close()


class _LockFile:
    """A lock file, also in a folder that cannot be written.

    Attributes:
        descriptor: -1 where the file does not exist and cannot be created: nothing can lock it.
        refusal: why the file cannot be written; None where it can.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, and creates it where it is missing."""
        self.path = path
        self.refusal: StoreError | None = None
        self.descriptor = -1
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            self.refusal = store_error(e, str(path))
            if not isinstance(self.refusal, StoreAccessError | StoreFullError):
                raise self.refusal from e
            with contextlib.suppress(OSError):
                self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def take(self, kind: int) -> bool:
        """Locks the file; returns False where another process has the lock."""
        return self.descriptor < 0 or _lock(self.descriptor, kind)

    def close(self) -> None:
        """Closes the file, which releases the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _decode(path: Path) -> OwnerRecord | None:
    try:
        return decode(_decoder, path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


_decoder = msgspec.json.Decoder(OwnerRecord)
