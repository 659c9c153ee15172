"""Who serves a state folder: one process, known to all others by ``.flowmesh/owner``.

The owner holds an exclusive lock on the file while it lives, which the kernel releases however it
dies; so a file without a lock is stale, whatever it says. Users of the fabric hold a shared lock on
``.flowmesh/joined``: the owner of a ``fmesh run`` goes when it gets that one for itself.
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

_READ_WITHIN_S = 2.0
_POLL_S = 0.02


class OwnerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the file says.

    Attributes:
        url: the API's address; empty while the owner still starts.
        token: what users of the API say; ``worker_token`` what workers join with.
        port: of the address, said before it is served: workers of a killed owner wait there.
        serves: ``up`` stays until stopped, ``run`` until all runs that joined have ended, ``read``
            for one question.
        workers: process ids of the local workers.
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
    """The lock on the owner file, held by this process."""

    def __init__(self, lock: "_LockFile", previous: OwnerRecord | None) -> None:
        """Takes the locked file and what a dead owner left in it."""
        self._lock = lock
        self.previous = previous

    def write(self, owner: OwnerRecord) -> None:
        """Says who owns it.

        Raises:
            StoreError: the folder is full or read-only.
        """
        self._write(msgspec.json.format(msgspec.json.encode(owner)) + b"\n")

    def release(self, *, leave: OwnerRecord | None = None) -> None:
        """Lets go of an empty file, or of one that still names somebody's orphaned workers."""
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
            os.pwrite(descriptor, data, 0)  # on a full disk what was there stays
            os.ftruncate(descriptor, len(data))
        except OSError as e:
            raise store_error(e, str(self._lock.path)) from e


def claim(state: StateDir, *, to_read: bool = False) -> Ownership | None:
    """Becomes the owner, unless another process is it.

    Args:
        state: the folder.
        to_read: a folder that cannot be written will do.

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
    """The living owner, or None. Waits a moment for one that is just starting."""
    end = time.monotonic() + _READ_WITHIN_S
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
    """A shared lock on ``joined``: the owner stays while it is held."""

    descriptor: int

    def __enter__(self) -> "JoinLock":
        """Held since it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Lets the owner go."""
        self.release()

    def release(self) -> None:
        """Lets the owner go; harmless when repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def join(state: StateDir) -> JoinLock | None:
    """Tells the owner to stay; None where it is just leaving."""
    lock = _LockFile(state.joined)
    if lock.take(fcntl.LOCK_SH):
        return JoinLock(lock.descriptor)
    lock.close()
    return None


@contextlib.contextmanager
def nobody_joined(state: StateDir) -> Iterator[bool]:
    """Whether nobody else uses the fabric; as long as the block lasts, nobody can join."""
    lock = _LockFile(state.joined)
    try:
        yield lock.take(fcntl.LOCK_EX)
    finally:
        lock.close()


class _LockFile:
    """A file that is there to be locked, also in a folder that cannot be written.

    Attributes:
        descriptor: -1 where the file is not there and cannot be made: then nobody holds its lock.
        refusal: why it cannot be written; None where it can.
    """

    def __init__(self, path: Path) -> None:
        """Opens it, and makes it where it is missing."""
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
        """Locks it; False where another process holds it."""
        return self.descriptor < 0 or _lock(self.descriptor, kind)

    def close(self) -> None:
        """Lets go of it."""
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
