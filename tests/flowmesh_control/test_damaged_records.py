"""One damaged record costs what it says, and nothing else; stray files cost nothing."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.attacks.by_hand import Place, control_on, end_of, noop, place
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_control.fabric import control_plane, machine_of, sealed
from tests.flowmesh_control.records.test_ended_index import ends, taken_over

from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.cache.admin import CacheAdmin, ServedModels
from flowmesh_control.errors import NewerPlanError
from flowmesh_control.records.accounts import AccountsRecord, AccountStore, read_last
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.records.cost_model_snapshot import load_model
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.epochs import begin_epoch, last_epoch
from flowmesh_control.records.keys import (
    accounts_key,
    cancelled_key,
    ended_key,
    epoch_key,
    final_key,
    learned_key,
    pins_key,
    policy_key,
    quarantine_key,
    segment_key,
    spec_key,
    taken_key,
)
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_ownership import write_taken
from flowmesh_control.records.run_records import UNREADABLE, PinsRecord, SpecRecord
from flowmesh_control.records.withheld_records import WithheldRecords
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import StepLine, encode_lines
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.costmodel.model import CostModel
from flowmesh_core.errors import DamagedRecordError, StoreAccessError
from flowmesh_core.graph.plan import PLAN_LEVEL, Plan
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.settings import Settings
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_store.hashing import digest_of
from flowmesh_store.ports import RecordStore
from flowmesh_store.store import Store, open_store

CUT = b'{"epoch": 1, "status": {"uid'


async def damage(records: RecordStore, key: str) -> None:
    """Leaves half a record."""
    there = await records.read(key)
    await records.write(key, CUT, if_match=None if there is None else there.etag)


async def unfinished(records: RecordStore, uid: str) -> None:
    spec = SpecRecord(uid, "n", "team-a", "d", 0.5, {})
    await records.write(spec_key(uid), msgspec.json.encode(spec))


@pytest.mark.parametrize("which", ["final", "spec", "pins", "ledger"])
async def test_a_run_with_a_damaged_record_is_listed_as_unreadable_and_other_runs_normally(
    store: Store, which: str
) -> None:
    records = store.records
    await ends(records, "whole", ended_s=5.0)
    if which in ("final", "spec"):
        await ends(records, "bad")
        key = final_key("bad") if which == "final" else spec_key("bad")
    else:
        await unfinished(records, "bad")
        key = pins_key("bad") if which == "pins" else segment_key("bad", 1, 1)
    await damage(records, key)
    found, archive, _ = await taken_over(records, 2)
    assert not found.submitted
    by_uid = {run.uid: run for run in archive.summaries()}
    assert by_uid["whole"].phase == "Succeeded"
    assert by_uid["bad"].phase == UNREADABLE
    assert key in by_uid["bad"].message
    assert by_uid["bad"].namespace == ("" if which == "spec" else "team-a")
    with pytest.raises(DamagedRecordError) as caught:
        await archive.get("bad")
    assert caught.value.key == key
    assert "restore the object" in caught.value.remedy
    assert (await archive.get("whole")) is not None


async def test_a_final_that_was_restored_is_read_again(store: Store) -> None:
    final = await ends(store.records, "bad")
    await damage(store.records, final_key("bad"))
    _, archive, _ = await taken_over(store.records, 2)
    record = await store.records.read(final_key("bad"))
    assert record is not None
    data = msgspec.json.encode(final)
    await store.records.write(final_key("bad"), data, if_match=record.etag)
    assert await archive.get("bad") == final


async def test_a_damaged_index_of_ended_runs_is_read_from_the_runs(store: Store) -> None:
    index = EndedRunIndex(store.records, epoch=1)
    index.add(await ends(store.records, "a"))
    await index.write(1)
    await damage(store.records, ended_key(1, 1))
    _, archive, _ = await taken_over(store.records, 2)
    assert [(run.uid, run.phase) for run in archive.summaries()] == [("a", "Succeeded")]


async def test_ended_lines_before_a_damaged_takeover_record_are_not_trusted(
    store: Store,
) -> None:
    late = EndedRunIndex(store.records, epoch=1)
    late.add(await ends(store.records, "a"))
    await late.write(1)
    await write_taken(store.records, epoch=2, uids=["a"])
    await damage(store.records, taken_key(2))
    await store.records.write(segment_key("a", 2, 0), b'{"1": 0}')
    _, archive, _ = await taken_over(store.records, 3)
    # Taken up again, as it should be: what it is pinned to is asked for, and missing here.
    assert [run.phase for run in archive.summaries()] == [UNREADABLE]


async def test_damaged_accounts_continue_from_the_previous_record(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    before = AccountsRecord(1.0, FabricAccount(receipts_nanousd=5), {}, {}, {}, epoch=1)
    await AccountStore(store.records, epoch=1).write(before)
    await damage(store.records, accounts_key(2))
    logging.getLogger("flowmesh").propagate = True
    with caplog.at_level(logging.WARNING, logger="flowmesh.control"):
        assert await read_last(store.records) == before
    assert accounts_key(2) in caplog.text


async def test_a_damaged_policy_is_named_and_not_guessed(store: Store) -> None:
    await damage(store.records, policy_key("shared"))
    with pytest.raises(DamagedRecordError, match="policies/shared"):
        await CachePolicyStore(store.records).load()


async def test_a_damaged_class_in_quarantine_is_named_and_not_guessed(store: Store) -> None:
    await damage(store.records, quarantine_key("a" * 64))
    with pytest.raises(DamagedRecordError, match="quarantine/a"):
        await Quarantine(store.records).load()


STRAY = [
    epoch_key(1) + ".bak",
    "epochs/notes.txt",
    accounts_key(9) + ".bak",
    ended_key(9, 1) + ".bak",
    taken_key(9) + ".bak",
    learned_key(9) + ".bak",
    "quarantine/notes.txt",
    segment_key("a", 1, 1) + ".bak",
]


@pytest.mark.parametrize("key", STRAY)
async def test_a_stray_file_is_skipped_and_named(
    store: Store, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = store.records
    assert await begin_epoch(records, owner="me", now_s=1.0) == 1
    await ends(records, "a")
    await records.write(key, b"what somebody left here")
    logging.getLogger("flowmesh").propagate = True
    with caplog.at_level(logging.WARNING, logger="flowmesh.control"):
        assert await last_epoch(records) == 1
        assert await begin_epoch(records, owner="me", now_s=1.0) == 2
        await Quarantine(records).load()
        await load_model(records)
        _, archive, _ = await taken_over(records, 2)
    assert [(run.uid, run.phase) for run in archive.summaries()] == [("a", "Succeeded")]
    assert repr(key) in caplog.text


async def put(store: Store, data: bytes) -> Artifact:
    digest = digest_of(data)
    await blobs_of(store).put(digest, data)
    return Artifact("blob", digest, digest, len(data))


def cleaning(store: Store, served: ServedModels = tuple) -> CacheAdmin:
    """Of a control plane that took nothing up."""
    machine = Machine(epoch=2, catalog=Catalog(()), settings=Settings(), model=CostModel())
    return CacheAdmin(
        store=store,
        state=machine.state,
        archive=Archive(store.records),
        result_ttl_s=3600.0,
        withheld=WithheldRecords(store),
        clock=lambda: 10.0,
        collected=lambda: None,
        served=served,
    )


def grow_old(folder: Path) -> None:
    """Two days pass for all blobs."""
    for path in folder.glob("cas/*/*/*"):
        os.utime(path, (0, 0))


@pytest.mark.parametrize("final", ["none", "damaged"])
async def test_a_collection_retains_blobs_of_a_run_that_is_neither_live_nor_known_to_have_ended(
    final: str, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "store")
    given, made, nobodys = [await put(store, data) for data in (b"given", b"made", b"nobody's")]
    await unfinished(store.records, "waits")
    pins = PinsRecord(
        1, Plan("n", "team-a", (), {}), ScopePlan(SCOPE, (SCOPE,), SCOPE), {"r": given}
    )
    await store.records.write(pins_key("waits"), msgspec.json.encode(pins))
    line = StepLine(1.0, "s", "COMPLETED", outputs={"o": made})
    await store.records.write(segment_key("waits", 1, 1), encode_lines([line]))
    if final == "damaged":
        await damage(store.records, final_key("waits"))
    grow_old(tmp_path / "store")
    done = await cleaning(store).collect(dry_run=False)
    assert done.deleted == 1
    assert await blobs_of(store).missing([a.blob for a in (given, made, nobodys)]) == {nobodys.blob}


SCOPES = ("ns-team-a", "ns-team-b", "group-x", "all")


async def run_that_cannot_be_read(store: Store, which: str) -> str:
    """An unfinished run of team-a; returns what says why, and what to do."""
    await unfinished(store.records, "bad")
    if which == "newer plan":
        pins = PinsRecord(1, Plan("n", "team-a", (), {}), ScopePlan(SCOPE, (SCOPE,), SCOPE))
        newer = msgspec.structs.replace(pins, level=PLAN_LEVEL + 1)
        await store.records.write(pins_key("bad"), msgspec.json.encode(newer))
        return "start the newer release again, or cancel the run"
    key = {"spec": spec_key("bad"), "pins": pins_key("bad"), "ledger": segment_key("bad", 1, 1)}
    await damage(store.records, key[which])
    return f"{key[which]}: the record cannot be read"


@pytest.mark.parametrize("which", ["spec", "pins", "ledger", "newer plan"])
async def test_a_run_that_cannot_be_read_keeps_what_it_may_need_and_no_content_of_others(
    which: str, tmp_path: Path
) -> None:
    store, digest = open_store(tmp_path / "store"), digest_of(b"garbage")
    for scope in SCOPES:
        await store.view(write=scope, read=(scope,)).put(digest, b"garbage")
    reason = await run_that_cannot_be_read(store, which)
    grow_old(tmp_path / "store")
    admin = cleaning(store)
    for dry_run in (True, False):
        done = await admin.collect(dry_run=dry_run)
        assert done.deleted == (0 if which == "spec" else 1)
        (text,) = done.unreadable_runs
        assert reason in text
        assert ("remove runs/bad/" in text) == (which != "newer plan")
        assert ("team-a" in text) == (which != "spec")
    left = {blob.scope async for blob in store.sweepable_blobs.blobs()}
    assert left == set(SCOPES) - (set() if which == "spec" else {"ns-team-b"})
    with pytest.raises((DamagedRecordError, NewerPlanError)):
        await admin.live()  # a revocation must not say that it erased all


async def test_an_audit_that_cannot_be_read_keeps_all_content(tmp_path: Path) -> None:
    """It reads the content of the run that it repeats."""
    store, garbage = open_store(tmp_path / "store"), digest_of(b"garbage")
    await store.view(write="ns-team-b", read=("ns-team-b",)).put(garbage, b"garbage")
    spec = SpecRecord("bad", "n", "team-a", "d", 0.5, {"kind": "FlowMeshAudit"})
    await store.records.write(spec_key("bad"), msgspec.json.encode(spec))
    await damage(store.records, pins_key("bad"))
    grow_old(tmp_path / "store")
    assert (await cleaning(store).collect(dry_run=False)).deleted == 0


async def test_a_collection_retains_the_models_of_services_unless_they_are_revoked(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path / "store")
    model, unused = [await put(store, data) for data in (b"model", b"unused")]
    grow_old(tmp_path / "store")
    admin = cleaning(store, lambda: [("team-a", (SCOPE,), model)])
    done = await admin.collect(dry_run=False)
    assert done.deleted == 1
    assert await blobs_of(store).missing([a.blob for a in (model, unused)]) == {unused.blob}
    now = ContentRevoked(frozenset({model.digest}), 10.0, "team-a")
    assert model.blob not in (await admin.live([now])).get(SCOPE, ())
    other = ContentRevoked(frozenset({model.digest}), 10.0, "team-b")
    assert model.blob in (await admin.live([other]))[SCOPE]


async def test_a_stray_file_among_the_blobs_does_not_stop_a_collection(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    digest = digest_of(b"x")
    await blobs_of(store).put(digest, b"x")
    (tmp_path / "store" / "cas" / SCOPE / digest[:2] / "notes.txt").write_text("what somebody left")
    assert [blob.digest async for blob in store.sweepable_blobs.blobs()] == [digest]


@pytest.mark.slow
async def test_the_api_lists_an_unreadable_run_and_marks_only_that_one(
    tmp_path: Path,
) -> None:
    from aiohttp import ClientSession
    from tests.flowmesh_control.fabric import Fabric

    control = control_plane(tmp_path)
    records = sealed(control._bare_store)
    await ends(records, "whole")
    await ends(records, "bad")
    await damage(records, final_key("bad"))
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        listed = {r["uid"]: r["phase"] for r in await fabric.call("GET", "/v1/runs")}
        assert listed == {"whole": "Succeeded", "bad": UNREADABLE}
        assert (await fabric.call("GET", "/v1/runs/whole"))["phase"] == "Succeeded"
        refused = await fabric.call("GET", "/v1/runs/bad", status=500)
    await control.stop()
    refused = msgspec.json.decode(refused) if isinstance(refused, bytes) else refused
    assert refused["error"]["code"] == "damaged-record"
    assert refused["error"]["where"] == final_key("bad")
    assert "restore the object" in refused["error"]["remedy"]


async def spoil(records: RecordStore, key: str) -> None:
    """Flips one byte within a string of a record, which then is not UTF-8."""
    there = await records.read(key)
    assert there is not None
    at = there.data.index(b'":"') + 3
    data = there.data[:at] + b"\xff" + there.data[at + 1 :]
    await records.write(key, data, if_match=there.etag)


async def test_a_damaged_result_is_recomputed_by_this_control_plane_and_the_next() -> None:
    async with place() as there:
        worker = await there.join("w")
        first = await there.submit("first", noop())
        [one] = await worker.given()
        await worker.sync(ended=(end_of(one.attempt_id, one.action_id),))
        await there.ended(first)
        [key] = [key async for key in there.store.records.keys("actions/")]
        await spoil(there.store.records, key)
        again = await there.submit("again", noop())
        two = (await worker.given(2))[1]
        assert there.alive
        await there.lead_anew()
        worker = await there.join("w", incarnation="second")
        [three] = await worker.given()
        assert three.action_id == two.action_id
        await worker.sync(ended=(end_of(three.attempt_id, three.action_id),))
        assert (await there.ended(again)).phase == "Succeeded"
        assert len(await there.published()) == 1


async def test_an_unreadable_cancellation_record_still_cancels() -> None:
    async with place() as there:
        uid = await there.submit("a", noop())
        wish = b'{"time_s": 1.0, "reason": "\xff"}'
        await there.sealed.write(cancelled_key(uid), wish)
        await there.lead_anew()
        assert (await there.ended(uid)).phase == "Cancelled"


async def test_a_cancelled_run_is_shown_as_cancelled_even_if_the_store_is_read_only() -> None:
    async with place() as there:
        stays, goes = await there.submit("stays", noop("1")), await there.submit("goes", noop("2"))
        await there.control.stop()
        wish = msgspec.json.encode({"time_s": 1.0, "reason": "nobody needs it"})
        await there.sealed.write(cancelled_key(goes), wish)
        there.control = control_on(there.store)
        await there.control.start_reading(StoreAccessError("this user may not write"))
        shown = {uid: await there.control.services.views.status(uid) for uid in (stays, goes)}
        assert "it was cancelled (nobody needs it)" in shown[goes].message
        assert "cancelled" not in shown[stays].message
        assert {run.phase for run in shown.values()} == {"Suspended"}


async def half_run(there: Place) -> str:
    """A run that has paid for one of its two steps, by the ledger and the accounts."""
    worker = await there.join("w")
    second = {"name": "two", "uses": "test.noop", "with": {"value": "2"}}
    uid = await there.submit("half", {"steps": [*noop()["steps"], second]})
    one, _ = await worker.given(2)
    await worker.sync(ended=(end_of(one.attempt_id, one.action_id),))
    await there.heard(lambda: one.attempt_id in worker.acknowledged)
    await there.lead_anew()  # what the first leader wrote is whole
    assert machine_of(there.control).state.book.receipts_nanousd > 0
    return uid


@pytest.mark.parametrize("epochs", [1, 2])
async def test_a_run_whose_spec_was_missing_for_a_while_is_billed_once(epochs: int) -> None:
    async with place() as there:
        uid = await half_run(there)
        before = machine_of(there.control).state.book
        records, key = there.store.records, spec_key(uid)
        whole = await records.read(key)
        assert whole is not None
        assert await there.store.sweepable_records.delete(key, older_than_s=0.0)
        for _ in range(epochs):
            await there.lead_anew()
        await records.write(key, whole.data)
        await there.lead_anew()
        state = machine_of(there.control).state
        assert uid in state.runs
        assert state.book.receipts_nanousd == before.receipts_nanousd
        assert state.book.executed == before.executed


@pytest.mark.parametrize("epochs", [1, 2])
async def test_the_accrued_cost_of_an_attempt_of_a_temporarily_damaged_run_is_billed_once(
    epochs: int,
) -> None:
    async with place() as there:
        uid = await half_run(there)
        records = there.sealed
        await there.control.stop()
        epoch = await last_epoch(records)
        last = await records.read(accounts_key(epoch))
        assert last is not None
        accounts = msgspec.json.decode(last.data, type=AccountsRecord)
        before = accounts.book
        accounts = msgspec.structs.replace(
            accounts,
            unsettled={"attempt": 7},
            book=replace(before, bill_nanousd=before.bill_nanousd + 7),
        )
        data = msgspec.json.encode(accounts)
        await records.write(accounts_key(epoch), data, if_match=last.etag)
        line = AttemptLine(
            9.0, "two", 0, digest_of(b"two"), "attempt", "w", "i", "failed", 20, 20
        )  # the leader died after this line, before its accounts counted it
        segments = [key async for key in records.keys(f"{segment_key(uid, epoch, 0)[:-1]}")]
        await records.write(segment_key(uid, epoch, len(segments)), encode_lines([line]))
        spec = await records.read(spec_key(uid))
        assert spec is not None
        await damage(records, spec_key(uid))
        for _ in range(epochs):
            there.control = control_on(there.store)
            await there.control.start()
            await there.control.stop()
        damaged = await records.read(spec_key(uid))
        assert damaged is not None
        await records.write(spec_key(uid), spec.data, if_match=damaged.etag)
        there.control = control_on(there.store)
        await there.control.start()
        book = machine_of(there.control).state.book
        assert book.receipts_nanousd == before.receipts_nanousd + 20
        assert book.bill_nanousd == before.bill_nanousd + 20


@pytest.mark.parametrize("which", ["spec", "ledger"])
async def test_a_run_that_was_damaged_for_a_while_is_billed_once(which: str) -> None:
    """The accounts go on to say how many of its lines they count, though it is not open."""
    async with place() as there:
        uid = await half_run(there)
        before = machine_of(there.control).state.book
        records = there.store.records
        keys = [key async for key in records.keys(f"runs/{uid}/") if which in key]
        key = next(key for key in keys if not key.endswith("/0"))
        whole = await records.read(key)
        assert whole is not None
        await damage(records, key)
        await there.lead_anew()
        (shown,) = there.control.services.views.summaries()
        assert shown.phase == UNREADABLE

        damaged = await records.read(key)
        assert damaged is not None
        await records.write(key, whole.data, if_match=damaged.etag)
        await there.lead_anew()
        state = machine_of(there.control).state
        assert uid in state.runs
        assert state.book.receipts_nanousd == before.receipts_nanousd
        assert state.book.executed == before.executed
