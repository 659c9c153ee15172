"""The current-event marker: a small file that says what the event loop is working on.

The loop writes it before each event and the machine before each run that the event changes, so that
the next start on the same machine or in the same pod can tell which run or worker ended the process
(ADR 29). A mapped file survives the death of its process, whatever ended it, without a system call
for each event; after a power cut it may be stale or empty.
"""

import logging
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from flowmesh_core.machine.events import (
    Amended,
    BlobsChecked,
    CancelRequested,
    ConditionEvaluated,
    ContentRevoked,
    ControlStalled,
    CordonChanged,
    Event,
    LookedUp,
    NamespaceLimitsChanged,
    PlacementDecided,
    PrewarmPlanChanged,
    ProtocolViolated,
    PublishDelayed,
    Published,
    PublishFailed,
    Repinned,
    ReservedPoolsChanged,
    RunFinalized,
    ServingPlanChanged,
    Submitted,
    TimeAdvanced,
    WeightsChanged,
    WorkerConnected,
    WorkerDisagreed,
    WorkerLost,
    WorkerSynced,
    WorkerTrustChanged,
)

log = logging.getLogger("flowmesh.control")

FILE = "current-event"
MARKER_BYTES = 256
_EPOCH, _NUMBER, _KIND, _ROLE, _SUBJECT = 0, 8, 16, 40, 41
_SUBJECT_BYTES = MARKER_BYTES - _SUBJECT - 1
_KIND_BYTES = _ROLE - _KIND
_IDLE = bytes(_KIND - _NUMBER)
_NO_SUBJECT, _RUN, _WORKER = b"-", b"r", b"w"
_DECISION = b"decision".ljust(_KIND_BYTES, b"\0") + _NO_SUBJECT
_number = struct.Struct("<Q")

_RUN_PATHS = {
    Submitted: "uid",
    BlobsChecked: "uid",
    ConditionEvaluated: "uid",
    Amended: "uid",
    CancelRequested: "uid",
    RunFinalized: "uid",
    Repinned: "run.uid",
}
_WORKER_PATHS = {
    WorkerConnected: "hello.shape.name",
    WorkerSynced: "name",
    WorkerLost: "name",
    ProtocolViolated: "name",
    WorkerDisagreed: "name",
    WorkerTrustChanged: "name",
}
_WITHOUT_SUBJECT = (
    LookedUp, Published, PublishFailed, PublishDelayed, CordonChanged, PrewarmPlanChanged,
    ServingPlanChanged, ReservedPoolsChanged, WeightsChanged, NamespaceLimitsChanged,
    ContentRevoked, PlacementDecided, TimeAdvanced, ControlStalled,
)  # fmt: skip


def _head(kind: type, role: bytes) -> bytes:
    return kind.__name__.encode()[:_KIND_BYTES].ljust(_KIND_BYTES, b"\0") + role


_HEADS: dict[type, tuple[bytes, Callable[[Event], str]]] = {
    **{kind: (_head(kind, _RUN), attrgetter(path)) for kind, path in _RUN_PATHS.items()},
    **{kind: (_head(kind, _WORKER), attrgetter(path)) for kind, path in _WORKER_PATHS.items()},
}
_HEADS_WITHOUT_SUBJECT: dict[type, bytes] = {
    kind: _head(kind, _NO_SUBJECT) for kind in _WITHOUT_SUBJECT
}


@dataclass(frozen=True, slots=True)
class CurrentEvent:
    """What a control plane was working on when it died.

    Attributes:
        epoch: that it led.
        number: of the event within the epoch, from 1.
        kind: of the event; ``decision`` for a scheduling cycle.
        run: uid of the run that was being worked on, or empty.
        worker: name of the worker whose message was being applied, or empty.
    """

    epoch: int
    number: int
    kind: str
    run: str = ""
    worker: str = ""


class CurrentEventMarker:
    """Writes the marker of one epoch."""

    def __init__(self, memory: mmap.mmap, *, epoch: int) -> None:
        """Starts idle; see :meth:`in_memory` and :meth:`in_folder`."""
        self._memory = memory
        self._number = 0
        self._settled, self._settled_bytes = "", b""
        memory[:] = _number.pack(epoch).ljust(MARKER_BYTES, b"\0")

    @classmethod
    def in_memory(cls, *, epoch: int) -> "CurrentEventMarker":
        """Returns a marker that is lost with the process."""
        return cls(mmap.mmap(-1, MARKER_BYTES), epoch=epoch)

    @classmethod
    def in_folder(cls, folder: Path, *, epoch: int) -> "CurrentEventMarker":
        """Returns a marker in a file, or in memory where the folder cannot be written."""
        try:
            return cls(_mapped(folder / FILE), epoch=epoch)
        except OSError as e:
            log.warning("no current-event marker in %s: %s", folder, e)
            return cls.in_memory(epoch=epoch)

    def begin(self, event: Event) -> None:
        """Marks the event that is applied next."""
        kind = type(event)
        self._number += 1
        found = _HEADS.get(kind)
        if found is None:
            head, subject = _HEADS_WITHOUT_SUBJECT[kind], b""
        else:
            head, subject = found[0], found[1](event).encode()[:_SUBJECT_BYTES] + b"\0"
        marked = _number.pack(self._number) + head + subject
        self._memory[_NUMBER : _NUMBER + len(marked)] = marked

    def begin_decision(self) -> None:
        """Marks that a scheduling cycle is next, which concerns all runs."""
        self._number += 1
        self._memory[_NUMBER:_SUBJECT] = _number.pack(self._number) + _DECISION

    def settle(self, uid: str) -> None:
        """Marks the run that the current event changes next."""
        if uid != self._settled:
            self._settled = uid
            self._settled_bytes = _RUN + uid.encode()[:_SUBJECT_BYTES] + b"\0"
        self._memory[_ROLE : _ROLE + len(self._settled_bytes)] = self._settled_bytes

    def end(self) -> None:
        """Marks that no event is being applied."""
        self._memory[_NUMBER:_KIND] = _IDLE

    def current(self) -> CurrentEvent | None:
        """Returns what is marked now; None while no event is being applied."""
        return _parsed(self._memory[:])


def read_marker(folder: Path) -> CurrentEvent | None:
    """Returns what the last control plane on this folder was working on when it ended.

    None where it was between two events, or there is no marker that can be read.
    """
    try:
        return _parsed((folder / FILE).read_bytes())
    except OSError:
        return None


def clear_marker(folder: Path) -> None:
    """Forgets what the last control plane was working on, once that is recorded."""
    (folder / FILE).unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Written and not only made longer: a mapped page without space on the disk is fatal.
        os.pwrite(descriptor, bytes(MARKER_BYTES), 0)
        return mmap.mmap(descriptor, MARKER_BYTES)
    finally:
        os.close(descriptor)


def _parsed(data: bytes) -> CurrentEvent | None:
    if len(data) != MARKER_BYTES:
        return None
    (epoch,), (number,) = _number.unpack_from(data, _EPOCH), _number.unpack_from(data, _NUMBER)
    if not number or not epoch:
        return None
    role, subject = data[_ROLE:_SUBJECT], data[_SUBJECT:].partition(b"\0")[0]
    try:
        kind = data[_KIND:_ROLE].rstrip(b"\0").decode()
        name = subject.decode()
    except UnicodeDecodeError:
        return None
    return CurrentEvent(
        epoch, number, kind, name if role == _RUN else "", name if role == _WORKER else ""
    )
