import asyncio
from typing import Any

import msgspec
import pytest

from flowmesh_api.v1.audit import AuditOrder, AuditReport, QuarantineEntry
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import ORDER, AuditRecords
from flowmesh_control.records.keys import audit_key, spec_key
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_records import FinalRecord, SpecRecord
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.store import Store

CLASS, OTHER = digest_bytes(b"class"), digest_bytes(b"other")


def entry(audit: str, signature_class: Digest = CLASS, **changes: Any) -> QuarantineEntry:
    values: dict[str, Any] = {
        "signature_class": signature_class,
        "engine": "test.drift",
        "contract": 1,
        "implementation": 1,
        "fields": {},
        "bump": 0,
        "active": True,
        "since_s": 1.0,
        "audit": audit,
        "run_uid": "u",
        "step": "s",
        "action_id": CLASS,
        "port": "metrics",
        "published": "a",
        "again": "b",
        **changes,
    }
    return QuarantineEntry(**values)


async def reopened(store: Store) -> Quarantine:
    found = Quarantine(store.records)
    await found.load()
    return found


async def test_a_quarantine_is_durable_and_its_salt_is_never_reused(store: Store) -> None:
    here = Quarantine(store.records)
    assert await here.add(entry("a1"), seen=0)
    assert await here.add(entry("a1", OTHER), seen=0)
    assert (await reopened(store)).salts() == {CLASS: 1, OTHER: 1}
    await here.release(CLASS[:12])
    later = await reopened(store)
    assert later.salts() == {OTHER: 1}
    assert [e.signature_class for e in later.active()] == [OTHER]
    assert await later.add(entry("a2"), seen=0)
    assert later.salts() == {CLASS: 2, OTHER: 1}


async def test_one_audit_raises_a_class_only_once_however_often_it_reports_it(store: Store) -> None:
    here = Quarantine(store.records)
    said = await asyncio.gather(*(here.add(entry("a1"), seen=0) for _ in range(5)))
    assert said == [True] * 5
    assert here.salts() == {CLASS: 1}


async def test_only_a_difference_in_results_made_after_a_quarantine_raises_it_again(
    store: Store,
) -> None:
    here = Quarantine(store.records)
    await here.add(entry("a1"), seen=0)
    assert not await here.add(entry("a2"), seen=0)
    assert here.salts() == {CLASS: 1}
    assert await here.add(entry("a3"), seen=1)
    assert here.salts() == {CLASS: 2}


@pytest.mark.parametrize("beginning", ["", "zz", CLASS])
async def test_only_one_class_in_quarantine_can_be_released(store: Store, beginning: str) -> None:
    here = Quarantine(store.records)
    if beginning != CLASS:
        await here.add(entry("a1"), seen=0)
        await here.add(entry("a1", OTHER), seen=0)
    with pytest.raises(NotFoundError):
        await here.release(beginning)


async def test_a_new_control_plane_counts_what_earlier_audits_found(store: Store) -> None:
    order = AuditOrder("u", "w", "a", 1.0, 0, 0.0, 3, (), (), {})
    report = AuditReport("audit-1", order, "Succeeded", counts={"same": 2, "differs": 1})
    spec = SpecRecord("audit-1", "n", "a", CLASS, 0.0, {ORDER: msgspec.to_builtins(order)})
    await store.records.write(spec_key("audit-1"), msgspec.json.encode(spec))
    archive = Archive(store.records)
    for uid, of in (("audit-1", "u"), ("audit-2", "u"), ("u", "")):
        status = RunStatus(uid, "n", "a", "Succeeded", 1.0, audit_of=of)
        archive.add(FinalRecord(1, status))
    audits = AuditRecords(store.records, Quarantine(store.records), lambda: 0.0)
    assert (await audits.report("audit-1")).phase == "Running"
    await store.records.write(audit_key("audit-1"), msgspec.json.encode(report))
    await audits.load(archive)
    assert audits.counts == {"same": 2, "differs": 1}
    assert await audits.report("audit-1") == report
    with pytest.raises(NotFoundError, match="is no audit"):
        await audits.report("u")
