"""A damaged record of one audit costs that audit, not the control plane and not the others."""

import json
from typing import Any

import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN, workflow
from tests.flowmesh_control.test_damaged_records import damage

from flowmesh_control.records.keys import audit_key, quarantine_key, spec_key
from flowmesh_control.runs.admission import Submission
from flowmesh_core.errors import DamagedRecordError
from flowmesh_store.ports import RecordStore


async def call(there: Place, method: str, path: str, **more: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    url = there.control.url + path
    async with there.http.request(method, url, headers=headers, **more) as response:
        return response.status, await response.json()


async def begun(there: Place, worker: HandWorker, value: str = "made") -> str:
    """A run of one action has ended, and an audit of it goes on."""
    count = len(worker.assigned)
    uid = await there.submit(value, noop(value))
    one = (await worker.given(count + 1))[count]
    await worker.sync(ended=(end_of(one.attempt_id, one.action_id),))
    await there.ended(uid)
    status, accepted = await call(there, "POST", f"/v1/runs/{uid}/audit", json={})
    assert status == 201
    await worker.given(count + 2)
    return str(accepted["uid"])


async def end(there: Place, worker: HandWorker, audit: str, value: str = "made") -> None:
    last = list(worker.assigned.values())[-1]
    await worker.sync(ended=(end_of(last.attempt_id, last.action_id, value),))
    await there.ended(audit)


async def test_a_damaged_report_prevents_neither_a_start_nor_the_list_of_other_audits() -> None:
    async with place() as there:
        worker = await there.join("w")
        bad = await begun(there, worker)
        await end(there, worker, bad)
        good = await begun(there, worker, "other")
        await end(there, worker, good)
        await damage(there.store.records, audit_key(bad))

        await there.lead_anew()
        assert sum(there.control.services.audits.counts.values()) == 1
        status, listed = await call(there, "GET", "/v1/audits")
        assert (status, [report["uid"] for report in listed]) == (200, [good])
        status, reply = await call(there, "GET", f"/v1/audits/{bad}")
        assert (status, reply["error"]["code"]) == (500, "damaged-record")
        assert reply["error"]["where"] == audit_key(bad)


@pytest.mark.parametrize(
    "how", ["cut", "without the order", "with another order", "of other steps"]
)
async def test_an_audit_with_an_unreadable_order_ends_with_the_reason(how: str) -> None:
    async with place() as there:
        worker = await there.join("w")
        audit = await begun(there, worker)
        records, key = there.sealed, spec_key(audit)
        await spoil_order(records, key, how)
        await end(there, worker, audit)
        assert there.alive
        status, report = await call(there, "GET", f"/v1/audits/{audit}")
        assert status == 200
        assert key in report["cut_off"]
        assert report["findings"] == []
        assert report["order"]["run_uid"]


async def spoil_order(records: RecordStore, key: str, how: str) -> None:
    whole = await records.read(key)
    assert whole is not None
    if how == "cut":
        await damage(records, key)
        return
    spec = json.loads(whole.data)
    if how == "without the order":
        del spec["document"]["order"]
    elif how == "of other steps":
        spec["document"]["order"]["checks"][0]["path"] = "another"
    else:
        spec["document"]["order"]["share"] = "much"
    await records.write(key, json.dumps(spec).encode(), if_match=whole.etag)


async def test_a_damaged_report_of_a_running_audit_is_written_again() -> None:
    """A leader wrote it and ended before the audit's ``final``."""
    async with place() as there:
        worker = await there.join("w")
        audit = await begun(there, worker)
        await damage(there.store.records, audit_key(audit))
        await end(there, worker, audit)
        status, report = await call(there, "GET", f"/v1/audits/{audit}")
        assert (status, report["counts"]["same"]) == (200, 1)


async def test_an_audit_that_finds_a_damaged_quarantine_record_ends_with_the_reason() -> None:
    async with place() as there:
        worker = await there.join("w")
        audit = await begun(there, worker)
        order = await there.control.services.audits.order(audit)
        key = quarantine_key(order.checks[0].signature_class)
        await damage(there.store.records, key)
        await end(there, worker, audit, "something else")
        assert there.alive
        _, report = await call(there, "GET", f"/v1/audits/{audit}")
        assert key in report["cut_off"]
        assert report["findings"][0]["verdict"] == "differs"
        assert report["quarantined"] == []


async def test_a_resubmission_of_a_uid_with_a_damaged_spec_names_the_record() -> None:
    async with place() as there:
        submission = Submission(document=workflow("a", noop()), uid="the-uid")
        await there.control.services.admission.submit(submission)
        await damage(there.store.records, spec_key("the-uid"))
        await there.lead_anew()
        with pytest.raises(DamagedRecordError, match=spec_key("the-uid")):
            await there.control.services.admission.submit(submission)
