"""The bucket's records of runs: specs, ledgers, finals, accounts and the learned cost model.

They are written as by the control plane (segments each second and before a verdict) and read by the
rules of ``flowmesh_control.runs.recovery``; for the money, by the same code (``accounts``).
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
        specs: of every accepted run, with its pins.
        lines: the flushed lines of every run's ledger, in order.
        opened: by run, the latest epoch that owns it; writes of lower epochs do not count.
        finals: by run; ``outputs`` and the epoch that ended the run in ``ended_by`` likewise.
        epoch: the latest epoch.
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
class _RunLines:
    lines: list[Line]
    written: int


class SimLedger:
    """The ledgers of all running runs in one epoch."""

    def __init__(self, bucket: SimBucket, epoch: int) -> None:
        self._bucket = bucket
        self._epoch = epoch
        self._ledgers: dict[str, _RunLines] = {}
        self._dirty: dict[str, None] = {}

    def open(self, uid: str) -> tuple[Line, ...]:
        """Takes ownership of a run; returns its lines so far."""
        self._bucket.opened[uid] = self._epoch
        lines = list(self._bucket.lines.get(uid, ()))
        self._ledgers[uid] = _RunLines(lines, len(lines))
        return tuple(lines)

    def append(self, uid: str, line: Line) -> None:
        """Adds a line; durable after the next flush."""
        ledger = self._ledgers.get(uid)
        if ledger is None:
            ledger = self._ledgers[uid] = _RunLines([], 0)
        ledger.lines.append(line)
        self._dirty[uid] = None

    def lengths(self) -> dict[str, int]:
        """Returns the number of lines of each run, flushed or not."""
        return {uid: len(ledger.lines) for uid, ledger in self._ledgers.items()}

    def flush(self, uid: str) -> None:
        """Writes a run's unflushed lines, unless a later epoch owns it."""
        ledger = self._ledgers.get(uid)
        self._dirty.pop(uid, None)
        if ledger is None or self._bucket.opened.get(uid, 0) > self._epoch:
            return
        self._bucket.lines.setdefault(uid, []).extend(ledger.lines[ledger.written :])
        ledger.written = len(ledger.lines)

    def flush_all(self) -> None:
        """Writes the unflushed lines of all runs."""
        for uid in list(self._dirty):
            self.flush(uid)

    def close(self, uid: str) -> None:
        """Releases an ended run's lines."""
        self._ledgers.pop(uid, None)
        self._dirty.pop(uid, None)


@dataclass(slots=True)
class SimRecovery:
    """The state from which a new epoch begins."""

    submitted: list[Submitted]
    opening: OpeningBalance


def recover(bucket: SimBucket, ledger: SimLedger) -> SimRecovery:
    """Recovers runs and accounts as ``flowmesh_control.runs.recovery.recover`` does."""
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
                quarantine_salts=spec.quarantine_salts,
            )
        )
    submitted.sort(key=lambda s: (s.created_s, s.uid))
    return SimRecovery(submitted, bring_up_to_date(last, later))
