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

from flowmesh_cli.state_dir import StateDir

_READ_WITHIN_S = 2.0
_POLL_S = 0.02


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
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

    def __init__(self, descriptor: int, previous: Owner | None) -> None:
        """Takes the locked file and what a dead owner left in it."""
        self._descriptor = descriptor
        self.previous = previous

    def write(self, owner: Owner) -> None:
        """Says who owns it."""
        data = msgspec.json.format(msgspec.json.encode(owner)) + b"\n"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, data, 0)

    def release(self, *, leave: Owner | None = None) -> None:
        """Lets go of an empty file, or of one that still names somebody's orphaned workers."""
        if leave is None:
            os.ftruncate(self._descriptor, 0)
        else:
            self.write(leave)
        os.close(self._descriptor)


def claim(state: StateDir) -> Ownership | None:
    """Becomes the owner, unless another process is it."""
    descriptor = os.open(state.owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _lock(descriptor, fcntl.LOCK_EX):
        os.close(descriptor)
        return None
    os.fchmod(descriptor, 0o600)
    return Ownership(descriptor, _decode(state.owner))


def current(state: StateDir) -> Owner | None:
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
class Joined:
    """A shared lock on ``joined``: the owner stays while it is held."""

    descriptor: int

    def __enter__(self) -> "Joined":
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


def join(state: StateDir) -> Joined | None:
    """Tells the owner to stay; None where it is just leaving."""
    descriptor = os.open(state.joined, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _lock(descriptor, fcntl.LOCK_SH):
        return Joined(descriptor)
    os.close(descriptor)
    return None


@contextlib.contextmanager
def nobody_joined(state: StateDir) -> Iterator[bool]:
    """Whether nobody else uses the fabric; as long as the block lasts, nobody can join."""
    descriptor = os.open(state.joined, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _decode(path: Path) -> Owner | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None
