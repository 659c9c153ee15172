"""What the bucket holds of runs: specs, ledgers, finals, accounts and the learned cost model.

Written as the control plane writes it (segments each second and before a verdict), read back by the
rules of ``flowmesh_control.runs.recovery`` and, for the money, by the same code (``accounts``).
"""

from dataclasses import dataclass, field

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.records.accounts import AccountsRecord, OpeningBalance, bring_up_to_date
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.machine.events import Submitted
from flowmesh_core.protocol.results import Artifact


@dataclass(slots=True)
class SimBucket:
    """Durable records.

    Attributes:
        specs: of every accepted run, as it was pinned.
        lines: of every run's ledger, in order, as far as it was flushed.
        opened: by run, the latest epoch that took it up: what lower ones write does not count.
        finals: by run, with its ``outputs``, and the epoch that ended it in ``ended_by``.
        epoch: the latest that began.
    """

    specs: dict[str, Submitted] = field(default_factory=dict)
    lines: dict[str, list[Line]] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    finals: dict[str, RunStatus] = field(default_factory=dict)
    outputs: dict[str, tuple[Artifact, ...]] = field(default_factory=dict)
    ended_by: dict[str, int] = field(default_factory=dict)
    accounts: AccountsRecord | None = None
    model: bytes = b""
    epoch: int = 0


@dataclass(slots=True)
class _Book:
    lines: list[Line]
    written: int


class SimLedger:
    """All live runs' ledgers in one epoch."""

    def __init__(self, bucket: SimBucket, epoch: int) -> None:
        """Takes where to write."""
        self._bucket = bucket
        self._epoch = epoch
        self._books: dict[str, _Book] = {}
        self._dirty: dict[str, None] = {}

    def open(self, uid: str) -> tuple[Line, ...]:
        """Takes a run up: its lines so far."""
        self._bucket.opened[uid] = self._epoch
        lines = list(self._bucket.lines.get(uid, ()))
        self._books[uid] = _Book(lines, len(lines))
        return tuple(lines)

    def append(self, uid: str, line: Line) -> None:
        """Adds a line; durable after the next flush."""
        book = self._books.get(uid)
        if book is None:
            book = self._books[uid] = _Book([], 0)
        book.lines.append(line)
        self._dirty[uid] = None

    def lengths(self) -> dict[str, int]:
        """How many lines each live run has, written or not."""
        return {uid: len(book.lines) for uid, book in self._books.items()}

    def flush(self, uid: str) -> None:
        """Writes a run's gathered lines."""
        book = self._books.get(uid)
        self._dirty.pop(uid, None)
        if book is None or self._bucket.opened.get(uid, 0) > self._epoch:
            return
        self._bucket.lines.setdefault(uid, []).extend(book.lines[book.written :])
        book.written = len(book.lines)

    def flush_all(self) -> None:
        """Writes all that has gathered."""
        for uid in list(self._dirty):
            self.flush(uid)

    def close(self, uid: str) -> None:
        """Forgets an ended run's lines."""
        self._books.pop(uid, None)
        self._dirty.pop(uid, None)


@dataclass(slots=True)
class SimRecovery:
    """What a new epoch begins with."""

    submitted: list[Submitted]
    opening: OpeningBalance


def recover(bucket: SimBucket, ledger: SimLedger) -> SimRecovery:
    """Sorts the runs as ``flowmesh_control.runs.recovery.recover`` does."""
    last = bucket.accounts
    counted = {} if last is None else last.counted
    later: list[Line] = []
    submitted: list[Submitted] = []
    for uid in sorted(bucket.specs):
        final = bucket.finals.get(uid)
        if final is not None:
            known = last and last.counted_of_ended(uid, bucket.ended_by[uid], final.ended_s)
            if last is None or known is not None:
                later += bucket.lines.get(uid, [])[known or 0 :]
            continue
        restored = ledger.open(uid)
        later += restored[counted.get(uid, 0) :]
        spec = bucket.specs[uid]
        submitted.append(
            Submitted(
                uid=uid,
                plan=spec.plan,
                created_s=spec.created_s,
                scopes=spec.scopes,
                artifacts=spec.artifacts,
                restored=restored,
                bumps=spec.bumps,
            )
        )
    submitted.sort(key=lambda s: (s.created_s, s.uid))
    return SimRecovery(submitted, bring_up_to_date(last, later))
