"""The fabric's accounts across restarts, so that Σ receipts + fabric = bill goes on to hold.

The book is written every few seconds under ``accounts/<epoch>``, after the ledgers that it counts.
What the ledgers say beyond the last record is added when the next epoch begins: they name the
attempt, its bill and the worker's process, so nothing is billed twice when that worker goes on.
What an attempt had run up without an end that a ledger knows becomes the fabric's, unless a worker
says that it still runs or has ended: then it is taken up with what it had run up.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field

import msgspec

from flowmesh_api.v1.enums import HitKind
from flowmesh_control.records.keys import ACCOUNTS, accounts_key, parse_epoch
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, AttemptLine, HitLine, Line
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError
from flowmesh_core.machine.state import State
from flowmesh_core.metrics.counters import UsageRow
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")


class AccountsRecord(msgspec.Struct, frozen=True):
    """``accounts/<epoch>``.

    Attributes:
        book: the totals.
        billed: by incarnation of a worker, what it was billed.
        counted: by live run, and by one that was absent, how many of its ledger's lines the totals
            count.
        unsettled: by attempt under way, and by one that was while a run is absent, what it had run
            up; part of ``bill_nanousd``.
        shares: the receipts and savings by tenant, pool and model, as far as metrics tell them
            apart. What a leader that crashed had not written yet is in ``book`` only.
        epoch: whose record it is; 0 where an older release wrote it.
        paid: what tenants paid of late, as ``FairShare.paid`` says it.
    """

    time_s: float
    book: FabricAccount
    billed: dict[str, int]
    counted: dict[str, int]
    unsettled: dict[str, int]
    shares: tuple[UsageRow, ...] = ()
    epoch: int = 0
    paid: dict[str, tuple[float, float]] = {}

    def counted_of_ended(self, uid: str, epoch: int, ended_s: float) -> int | None:
        """How many lines of an ended run's ledger the totals count; None where they count all.

        Epochs tell what came first. Times do within one epoch only, whose clock is steady: the next
        leader's may be set to an hour earlier.

        Args:
            uid: the run.
            epoch: of the leader that ended it, at ``ended_s`` by that leader's clock.
            ended_s: seconds since the epoch (UTC).
        """
        if uid in self.counted:
            return self.counted[uid]
        if self.epoch and epoch != self.epoch:
            return None if epoch < self.epoch else 0
        return 0 if ended_s >= self.time_s else None


@dataclass(slots=True)
class AbsentRuns:
    """What the totals hold of runs whose records are missing or damaged: they may be restored.

    Each record of the accounts repeats it until then, so that nothing is billed again.

    Attributes:
        counted: by run, how many of its ledger's lines the totals count.
        unsettled: by attempt that no ledger at hand has an end of, what it had run up. A ledger
            that is absent may have it.
    """

    counted: dict[str, int] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)

    def added_to(self, record: AccountsRecord) -> AccountsRecord:
        """The record with what is absent; what it says itself goes first."""
        return msgspec.structs.replace(
            record,
            counted=self.counted | record.counted,
            unsettled=self.unsettled | record.unsettled,
        )

    def adopt(self, attempts: Set[str]) -> None:
        """Leaves attempts to the leader that has them under way."""
        for attempt_id in self.unsettled.keys() & attempts:
            del self.unsettled[attempt_id]


@dataclass(slots=True)
class OpeningBalance:
    """What a new epoch's accounts begin with.

    Attributes:
        unsettled: by attempt that no ledger has an end of, what it had run up: the fabric's, until
            a worker says that it goes on.
        paid: what tenants paid of late; the few seconds after the record are forgiven.
        absent: of runs that are neither live nor known to have ended.
    """

    book: FabricAccount = field(default_factory=FabricAccount)
    billed: dict[str, int] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)
    shares: tuple[UsageRow, ...] = ()
    paid: dict[str, tuple[float, float]] = field(default_factory=dict)
    absent: AbsentRuns = field(default_factory=AbsentRuns)

    def paid_by(self, now_s: float) -> dict[str, tuple[float, float]]:
        """``paid``, with nothing of later than now: the clock may have been an hour ahead."""
        return {tenant: (usd, min(at_s, now_s)) for tenant, (usd, at_s) in self.paid.items()}


class AccountStore:
    """Writes one epoch's accounts."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        """Takes where to write."""
        self._records = records
        self._key = accounts_key(epoch)
        self._etag: str | None = None
        self._last = b""

    async def write(self, record: AccountsRecord) -> bool:
        """Writes a record, where it says anything new.

        Returns:
            Whether what it says is durable; else the next call makes up for it.

        Raises:
            StoreUnavailableError, StoreFullError: the next call makes up for it.
        """
        data = msgspec.json.encode(record)
        said = msgspec.json.encode(msgspec.structs.replace(record, time_s=0.0))
        if said == self._last:
            return True
        try:
            self._etag = await self._records.write(self._key, data, if_match=self._etag)
        except ConditionFailedError:
            # A write whose answer was lost: the key is this epoch's alone.
            found = await self._records.read(self._key)
            self._etag = None if found is None else found.etag
            return False
        self._last = said
        return True


def capture(state: State, counted: Mapping[str, int], now_s: float) -> AccountsRecord:
    """The accounts at this moment; ``counted`` says how long each live ledger is now."""
    return AccountsRecord(
        time_s=now_s,
        book=FabricAccount(**asdict(state.book)),
        billed={w.incarnation: w.meter.billed_nanousd for w in state.workers.values()}
        | state.resumed_bills,
        counted=dict(counted),
        unsettled={a.attempt_id: a.charged_nanousd for a in state.attempts.values()}
        | state.resumed_charges,
        shares=state.figures.rows(),
        epoch=state.epoch,
        paid=state.fair.paid(now_s),
    )


async def read_last(records: RecordStore) -> AccountsRecord | None:
    """The record of the latest epoch that wrote one that can be read.

    What ended between an older record and the one that is damaged is counted by its ledgers, but
    for runs that the index of ended runs tells of: those figures are lost.
    """
    keys = [key async for key, _ in known_keys(records, ACCOUNTS, parse_epoch)]
    for key in reversed(keys):
        record = await records.read(key)
        if record is None:
            continue
        try:
            return decode_record(_decoder, key, record.data)
        except DamagedRecordError as e:
            log.warning("%s; the accounts go on from the record before it", e)
    return None


_decoder = msgspec.json.Decoder(AccountsRecord)


def bring_up_to_date(
    last: AccountsRecord | None, later: Iterable[Line], absent: Iterable[str] = ()
) -> OpeningBalance:
    """Adds what ledgers say beyond the record.

    Args:
        last: the record; None where there never was one.
        later: the lines that it does not count, of all runs.
        absent: runs that are neither live nor known to have ended.
    """
    if last is None:
        last = AccountsRecord(0.0, FabricAccount(), {}, {}, {})
    book, billed = FabricAccount(**asdict(last.book)), dict(last.billed)
    seen: set[str] = set()
    for line in later:
        if isinstance(line, AttemptLine):
            book.receipts_nanousd += line.share_nanousd
            if line.attempt_id not in seen:
                seen.add(line.attempt_id)
                fresh = line.bill_nanousd - last.unsettled.get(line.attempt_id, 0)
                book.bill_nanousd += fresh
                billed[line.incarnation] = billed.get(line.incarnation, 0) + fresh
            # Said in the ledger of one of those that paid, whichever is read first.
            book.executed += line.outcome in EXECUTED_OUTCOMES
        elif isinstance(line, HitLine):
            _count_hit(book, line)
    book.fabric_nanousd = book.bill_nanousd - book.receipts_nanousd
    unsettled = {a: n for a, n in last.unsettled.items() if a not in seen}
    counted = {uid: last.counted[uid] for uid in absent if uid in last.counted}
    remembered = AbsentRuns(counted, dict(unsettled) if counted else {})
    return OpeningBalance(book, billed, unsettled, last.shares, last.paid, remembered)


def _count_hit(book: FabricAccount, line: HitLine) -> None:
    book.saved_nanousd += line.saved_nanousd
    book.hits_published += line.hit == HitKind.PUBLISHED
    book.hits_in_flight += line.hit == HitKind.IN_FLIGHT
    book.hits_step_level += line.hit == HitKind.STEP_LEVEL
