import msgspec
import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.records.accounts import (
    AccountsRecord,
    AccountStore,
    bring_up_to_date,
    read_last,
)
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.keys import final_key, segment_key, spec_key
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.run_records import FinalRecord, SpecRecord
from flowmesh_control.runs.recovery import recover
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import Line, encode_lines
from flowmesh_core.identity import digest_bytes
from flowmesh_store.store import Store

D = digest_bytes(b"action")


def attempt(attempt_id: str, bill: int, share: int, outcome: str = "published") -> Line:
    return AttemptLine(1.0, "s", 0, D, attempt_id, "w", "i1", outcome, bill, share)


def record(**changes: object) -> AccountsRecord:
    book = FabricAccount(bill_nanousd=100, receipts_nanousd=60, fabric_nanousd=30, executed=3)
    fields = {"time_s": 1.0, "book": book, "billed": {"i1": 100}, "counted": {"u1": 1}}
    return AccountsRecord(**{**fields, "unsettled": {"t9": 10}, **changes})  # type: ignore[arg-type]


def test_without_a_record_everything_in_the_ledgers_counts() -> None:
    opening = bring_up_to_date(None, [attempt("t1", 10, 4, "shared"), attempt("t1", 10, 6)])
    book = opening.book
    assert (book.bill_nanousd, book.receipts_nanousd, book.fabric_nanousd) == (10, 10, 0)
    assert opening.billed == {"i1": 10}
    assert book.executed == 1


def test_unsettled_amounts_without_an_end_are_charged_to_the_fabric_account() -> None:
    book = bring_up_to_date(record(), []).book
    assert (book.bill_nanousd, book.receipts_nanousd, book.fabric_nanousd) == (100, 60, 40)
    assert book.unsettled_nanousd == 0


def test_an_attempt_that_ended_after_the_record_is_billed_for_the_rest_only() -> None:
    opening = bring_up_to_date(record(), [attempt("t9", 25, 25)])
    assert opening.book.bill_nanousd == 115
    assert opening.book.receipts_nanousd == 85
    assert opening.book.fabric_nanousd == 30
    assert opening.billed == {"i1": 115}


def test_recent_payments_of_tenants_continue_on_the_current_clock() -> None:
    opening = bring_up_to_date(record(paid={"a": (7.0, 50.0), "b": (8.0, 3650.0)}), [])
    assert opening.paid_by(60.0) == {"a": (7.0, 50.0), "b": (8.0, 60.0)}


def test_hits_after_the_record_are_counted_by_kind() -> None:
    line = HitLine(1.0, "s", 0, D, "in-flight", 7)
    book = bring_up_to_date(record(), [line]).book
    assert (book.hits_in_flight, book.saved_nanousd) == (1, 7)


def test_a_run_that_is_absent_for_two_epochs_is_counted_once_when_it_is_restored() -> None:
    last = record()
    for _ in range(2):
        opening = bring_up_to_date(last, [], absent={"u1"})
        last = opening.absent.added_to(record(book=opening.book, counted={}, unsettled={}))
    assert last.counted == {"u1": 1}  # so its line 0 is not read again, and its later ones are
    book = bring_up_to_date(last, [attempt("t9", 25, 25)]).book
    assert (book.bill_nanousd, book.receipts_nanousd, book.fabric_nanousd) == (115, 85, 30)


def test_an_attempt_of_an_absent_run_that_continues_is_accounted_by_the_machine_alone() -> None:
    absent = bring_up_to_date(record(), [], absent={"u1"}).absent
    absent.adopt({"t9"})
    assert absent.added_to(record(unsettled={})).unsettled == {}


def test_a_run_that_is_known_is_not_remembered_as_absent() -> None:
    absent = bring_up_to_date(record(), []).absent
    assert absent.added_to(record(counted={}, unsettled={})).counted == {}


async def test_the_latest_epochs_record_is_read_back(store: Store) -> None:
    assert await read_last(store.records) is None
    for epoch in (9, 10):
        accounts = AccountStore(store.records, epoch=epoch)
        await accounts.write(record(time_s=float(epoch)))
        await accounts.write(record(time_s=epoch + 0.5, counted={"u1": epoch}))
    found = await read_last(store.records)
    assert found is not None
    assert found.counted == {"u1": 10}


async def test_an_unchanged_record_is_not_written(store: Store) -> None:
    accounts = AccountStore(store.records, epoch=1)
    await accounts.write(record(time_s=1.0))
    await accounts.write(record(time_s=2.0))
    found = await read_last(store.records)
    assert found is not None
    assert found.time_s == 1.0


async def _receipts(store: Store, ended_s: float, ended_by: int, recorded_by: int) -> int:
    """Of a run that ended, beside a record of second 2 that does not name it."""
    records = store.records
    spec = SpecRecord("u2", "n", "team-a", "d", 0.5, {})
    status = RunStatus("u2", "n", "team-a", "Succeeded", 0.5, ended_s)
    await records.write(spec_key("u2"), msgspec.json.encode(spec))
    await records.write(segment_key("u2", 1, 1), encode_lines([attempt("t1", 7, 7)]))
    await records.write(final_key("u2"), msgspec.json.encode(FinalRecord(ended_by, status, {})))
    made = record(time_s=2.0, unsettled={}, epoch=recorded_by)
    await AccountStore(records, epoch=max(1, recorded_by)).write(made)
    found = await recover(
        records,
        ledger=LedgerWriter(records, epoch=4),
        archive=Archive(records),
        index=EndedRunIndex(records, epoch=4),
        catalog=builtin_catalog(),
        deaths={},
    )
    return found.opening.book.receipts_nanousd


@pytest.mark.parametrize("recorded_by", [0, 1])
@pytest.mark.parametrize(("ended_s", "receipts"), [(1.5, 60), (3.0, 67)])
async def test_a_run_without_a_line_at_the_record_that_ended_after_it_counts(
    store: Store, ended_s: float, receipts: int, recorded_by: int
) -> None:
    """A run that ended before the record is part of its totals, with all its lines."""
    assert await _receipts(store, ended_s, 1, recorded_by) == receipts


async def test_a_run_that_an_earlier_leader_ended_counts_once_though_the_clock_was_set_back(
    store: Store,
) -> None:
    assert await _receipts(store, 3600.0, ended_by=1, recorded_by=2) == 60


async def test_a_run_that_a_later_leader_ended_counts_though_its_clock_was_behind(
    store: Store,
) -> None:
    assert await _receipts(store, 1.0, ended_by=3, recorded_by=2) == 67
