"""The fabric's accounts across restarts.

Σ receipts + services + fabric = bill holds after each of them.

The accounts are written every few seconds under ``accounts/<epoch>``, after the ledgers that they
count. When the next epoch begins, it adds the ledger lines after the last record: they name the
attempt, its bill and the worker's process, so nothing is billed twice when that worker continues.
The cost of an attempt whose end no ledger has is charged to the fabric, unless a worker reports
that the attempt runs or has ended: then it continues with the cost that it had.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field

import msgspec

from flowmesh_api.v1.enums import HitKind
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.records.keys import ACCOUNTS, accounts_key, parse_epoch
from flowmesh_control.records.known_keys import known_keys
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, Line
from flowmesh_core.accounting.service_charges import ServiceDay
from flowmesh_core.errors import ConditionFailedError, DamagedRecordError
from flowmesh_core.machine.state import State
from flowmesh_core.metrics.counters import UsageRow
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")


class AccountsRecord(msgspec.Struct, frozen=True):
    """``accounts/<epoch>``.

    Attributes:
        book: the totals.
        billed: by incarnation of a worker, what it was billed, in nano-dollars.
        counted: by live or absent run, how many of its ledger's lines the totals count.
        unsettled: by attempt under way, its cost so far in nano-dollars, a part of
            ``bill_nanousd``; also of earlier attempts while a run is absent.
        shares: receipts and savings by tenant, pool and model, as far as metrics distinguish them.
            Lines that a leader had not written when it crashed are in ``book`` only.
        epoch: of the leader that wrote it; 0 where an older release wrote it.
        paid: what tenants paid recently, as of ``FairShare.paid``.
        spent: what namespaces paid in the last day in nano-dollars, by hour.
        uploaded: what namespaces uploaded in the last day in bytes, by hour.
        services: service → nano-dollars that its replicas have cost; they add up to the total.
        service_days: the days of it that have no record yet, and the latest.
    """

    time_s: float
    book: FabricAccount
    billed: dict[str, int]
    counted: dict[str, int]
    unsettled: dict[str, int]
    shares: tuple[UsageRow, ...] = ()
    epoch: int = 0
    paid: dict[str, tuple[float, float]] = {}
    spent: dict[str, dict[int, int]] = {}
    uploaded: dict[str, dict[int, int]] = {}
    services: dict[str, int] = {}
    service_days: tuple[ServiceDay, ...] = ()

    def counted_of_ended(self, uid: str, epoch: int, ended_s: float) -> int | None:
        """Returns how many lines of an ended run's ledger the totals count; None for all.

        Epochs order the records of different leaders. Times are compared within one epoch only,
        whose clock does not jump: the next leader's clock may be an hour behind.

        Args:
            uid: the run.
            epoch: of the leader that ended it, at ``ended_s`` by that leader's clock.
            ended_s: Unix time in seconds.
        """
        if uid in self.counted:
            return self.counted[uid]
        if self.epoch and epoch != self.epoch:
            return None if epoch < self.epoch else 0
        return 0 if ended_s >= self.time_s else None


@dataclass(slots=True)
class AbsentRuns:
    """What the totals include of runs whose records are missing or damaged.

    The records may be restored later. Until then each record of the accounts repeats these values,
    so that nothing is billed again.

    Attributes:
        counted: by run, how many of its ledger's lines the totals count.
        unsettled: by attempt without an end in any available ledger, its cost. An absent ledger may
            have its end.
    """

    counted: dict[str, int] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)

    def added_to(self, record: AccountsRecord) -> AccountsRecord:
        """Returns the record with these values added; its own values take precedence."""
        return msgspec.structs.replace(
            record,
            counted=self.counted | record.counted,
            unsettled=self.unsettled | record.unsettled,
        )

    def adopt(self, attempts: Set[str]) -> None:
        """Removes attempts that the machine has under way, since it accounts for them."""
        for attempt_id in self.unsettled.keys() & attempts:
            del self.unsettled[attempt_id]


@dataclass(slots=True)
class OpeningBalance:
    """The accounts with which a new epoch begins.

    Attributes:
        unsettled: by attempt without an end in any ledger, its cost; charged to the fabric until a
            worker reports that the attempt continues.
        paid: what tenants paid recently; the few seconds after the record are not counted.
        spent: what namespaces paid in the last day, by hour.
        uploaded: what they uploaded; the few seconds after the record are not counted.
        absent: values of runs that are neither live nor known to have ended.
        services: what services have cost; the few seconds after the record are the fabric's.
        service_days: the latest days of it.
    """

    book: FabricAccount = field(default_factory=FabricAccount)
    billed: dict[str, int] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)
    shares: tuple[UsageRow, ...] = ()
    paid: dict[str, tuple[float, float]] = field(default_factory=dict)
    absent: AbsentRuns = field(default_factory=AbsentRuns)
    spent: dict[str, dict[int, int]] = field(default_factory=dict)
    uploaded: dict[str, dict[int, int]] = field(default_factory=dict)
    services: dict[str, int] = field(default_factory=dict)
    service_days: tuple[ServiceDay, ...] = ()

    def paid_by(self, now_s: float) -> dict[str, tuple[float, float]]:
        """Returns ``paid`` with no time after now: the earlier clock may have been ahead."""
        return {tenant: (usd, min(at_s, now_s)) for tenant, (usd, at_s) in self.paid.items()}


class AccountStore:
    """Writes one epoch's accounts."""

    def __init__(self, records: RecordStore, *, epoch: int) -> None:
        self._records = records
        self._key = accounts_key(epoch)
        self._etag: str | None = None
        self._last = b""

    async def write(self, record: AccountsRecord) -> bool:
        """Writes a record if it differs from the last one in more than its time.

        Returns:
            Whether its content is durable; if not, the next call writes it.

        Raises:
            StoreUnavailableError, StoreFullError: the next call writes it.
        """
        data = msgspec.json.encode(record)
        said = msgspec.json.encode(msgspec.structs.replace(record, time_s=0.0))
        if said == self._last:
            return True
        try:
            self._etag = await self._records.write(self._key, data, if_match=self._etag)
        except ConditionFailedError:
            # An earlier write of ours whose answer was lost: only this epoch writes the key.
            found = await self._records.read(self._key)
            self._etag = None if found is None else found.etag
            return False
        self._last = said
        return True


def capture(
    state: State,
    counted: Mapping[str, int],
    now_s: float,
    uploaded: Mapping[str, dict[int, int]] | None = None,
) -> AccountsRecord:
    """Returns the accounts at this moment.

    Args:
        state: of the machine.
        counted: the length of each live ledger.
        now_s: Unix time in seconds.
        uploaded: what namespaces uploaded in the last day in bytes, by hour.
    """
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
        spent=state.daily_spend.current(now_s),
        uploaded=dict(uploaded or {}),
        services=dict(state.service_spend),
        service_days=state.service_charges.rows(),
    )


async def read_last(records: RecordStore) -> AccountsRecord | None:
    """Returns the readable record of the latest epoch.

    If a later one is damaged, runs that ended since are counted from their ledgers, except those in
    the index of ended runs: their amounts are lost.
    """
    keys = [key async for key, _ in known_keys(records, ACCOUNTS, parse_epoch)]
    for key in reversed(keys):
        record = await records.read(key)
        if record is None:
            continue
        try:
            return decode_record(_decoder, key, record)
        except DamagedRecordError as e:
            log.warning("%s; the accounts go on from the record before it", e)
    return None


_decoder = msgspec.json.Decoder(AccountsRecord)


def bring_up_to_date(
    last: AccountsRecord | None, later: Iterable[Line], absent: Iterable[str] = ()
) -> OpeningBalance:
    """Adds the ledger lines after the record.

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
            # Only the ledger of one of the paying runs has the outcome, so the order is irrelevant.
            book.executed += line.outcome in EXECUTED_OUTCOMES
        elif isinstance(line, HitLine):
            _count_hit(book, line)
    settled = book.receipts_nanousd + book.services_nanousd
    book.fabric_nanousd = book.bill_nanousd - settled
    unsettled = {a: n for a, n in last.unsettled.items() if a not in seen}
    counted = {uid: last.counted[uid] for uid in absent if uid in last.counted}
    remembered = AbsentRuns(counted, dict(unsettled) if counted else {})
    return OpeningBalance(
        book,
        billed,
        unsettled,
        last.shares,
        last.paid,
        remembered,
        spent=last.spent,
        uploaded=last.uploaded,
        services=last.services,
        service_days=last.service_days,
    )


def _count_hit(book: FabricAccount, line: HitLine) -> None:
    book.saved_nanousd += line.saved_nanousd
    book.hits_published += line.hit == HitKind.PUBLISHED
    book.hits_in_flight += line.hit == HitKind.IN_FLIGHT
    book.hits_step_level += line.hit == HitKind.STEP_LEVEL
