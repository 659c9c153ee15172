"""Users delete runs that have ended: from lists and lineage at once, from bills never."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.fabric import workflow
from tests.flowmesh_control.rights import EDIT, VIEW, TableOfUsers

from flowmesh_api.v1.charges import ChargePage
from flowmesh_api.v1.receipts import ReceiptPage
from flowmesh_api.v1.runs import RunSummary
from flowmesh_control.records.keys import DELETED, spec_key
from flowmesh_control.runs.admission import Submission
from flowmesh_core.errors import SpecError, StoreUnavailableError

USERS = {"root": {"*": EDIT}, "ada": {"team-a": EDIT}, "bob": {"team-b": EDIT, "team-a": VIEW}}
SPEC = {**noop(), "outputs": {"made": "one.metrics"}}


async def ended(there: Place, name: str = "flow", spec: Mapping[str, Any] = SPEC) -> str:
    """Runs a workflow of one step; the first one is executed, later ones are hits."""
    worker = there.workers[-1]
    uid = await there.submit(name, dict(spec))
    if not worker.assigned:
        (attempt,) = await worker.given()
        await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id),))
    assert (await there.ended(uid)).phase == "Succeeded"
    return uid


async def delete(there: Place, uid: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token or there.token}"}
    url = f"{there.control.url}/v1/runs/{uid}"
    async with there.http.delete(url, headers=headers) as response:
        return response.status, await response.json()


async def status_of(there: Place, path: str) -> int:
    headers = {"Authorization": f"Bearer {there.token}"}
    async with there.http.get(there.control.url + path, headers=headers) as response:
        return response.status


async def listed(there: Place) -> list[str]:
    found = msgspec.json.decode(await there.get("/v1/runs"), type=list[RunSummary])
    return [run.uid for run in found]


async def paid(there: Place) -> tuple[dict[str, int], dict[str, int]]:
    """By run: the sums of its charges, and what its receipt says."""
    charges = msgspec.json.decode(await there.get("/v1/charges"), type=ChargePage).charges
    receipts = msgspec.json.decode(await there.get("/v1/receipts"), type=ReceiptPage).receipts
    return {c.run: c.paid_nanousd for c in charges}, {r.uid: r.paid_nanousd for r in receipts}


async def keys(there: Place, prefix: str) -> list[str]:
    return [key async for key in there.store.records.keys(prefix)]


async def test_a_deleted_run_is_gone_from_lists_and_lineage_and_stays_in_bills() -> None:
    async with place() as there:
        await there.join("w")
        uid, other = await ended(there), await ended(there, "other")
        lineage = await there.get(f"/v1/runs/{other}/lineage?name=made")
        digest = msgspec.json.decode(lineage)["digest"]
        runs = {d["uid"] for d in msgspec.json.decode(lineage)["derivations"]}
        assert runs == {other}
        before = await paid(there)
        assert set(before[1]) == {uid, other}
        assert before[1][uid] > 0

        assert await delete(there, uid) == (
            200, {"uid": uid, "name": "flow", "namespace": "team-a"},
        )  # fmt: skip
        for _ in range(2):
            assert await listed(there) == [other]
            for view in ("", "/receipt", "/logs", "/outputs", "/why?step=one"):
                assert await status_of(there, f"/v1/runs/{uid}{view}") == 404
            walk = msgspec.json.decode(await there.get(f"/v1/lineage/{digest}"))
            assert {d["uid"] for d in walk["derivations"]} == {other}
            assert await paid(there) == before
            assert await keys(there, f"runs/{uid}/") == []
            await there.lead_anew()
        # What it published is still found.
        await there.join("w2")
        again = await there.submit("again", dict(SPEC))
        assert (await there.ended(again)).hits == 1


async def test_a_run_is_deleted_once_and_another_time_it_does_not_exist() -> None:
    async with place() as there:
        await there.join("w")
        uid = await ended(there)
        assert (await delete(there, uid))[0] == 200
        status, told = await delete(there, uid)
        assert (status, told["error"]["message"]) == (404, f"there is no run {uid!r}")
        assert told["error"]["remedy"] == "`fmesh status --all` lists the runs"


async def test_a_run_that_has_not_ended_is_refused_with_the_remedy() -> None:
    async with place() as there:
        uid = await there.submit("waits", noop())
        status, told = await delete(there, uid)
        assert status == 409
        assert told["error"]["message"] == f"run {uid} has not ended (Running)"
        assert told["error"]["remedy"] == f"`fmesh cancel {uid}` ends it; then delete it"
        assert await listed(there) == [uid]


async def test_runs_of_other_namespaces_look_as_if_they_did_not_exist() -> None:
    async with place(users=TableOfUsers(USERS)) as there:
        there.token = "root-token"
        await there.join("w")
        uid = await ended(there)
        theirs = await there.submit("theirs", noop(), namespace="team-c")
        status, told = await delete(there, theirs, "ada-token")
        _, unknown = await delete(there, "unknown", "ada-token")
        assert status == 404
        assert told["error"]["message"].replace(theirs, "unknown") == unknown["error"]["message"]
        assert (await delete(there, uid, "bob-token"))[0] == 403
        assert await listed(there) == [uid, theirs]
        assert (await delete(there, uid, "ada-token"))[0] == 200


async def test_a_deletion_that_is_interrupted_is_finished_and_the_run_does_not_come_back() -> None:
    async with place() as there:
        await there.join("w")
        uid = await ended(there)
        before = await paid(there)
        retention = there.control.services.deletion.retention
        sweepable = retention._sweepable

        class Dies:
            def __getattr__(self, name: str) -> Any:
                return getattr(sweepable, name)

            async def delete(self, key: str, *, older_than_s: float) -> bool:
                if key != spec_key(uid):
                    raise StoreUnavailableError("killed", where=key)
                return await sweepable.delete(key, older_than_s=older_than_s)

        retention._sweepable = Dies()  # type: ignore[assignment]
        assert (await delete(there, uid))[0] == 503
        await there.lead_anew()
        assert await listed(there) == []
        assert len(await keys(there, f"runs/{uid}/")) > 0
        assert await paid(there) == before
        report = await there.control.services.collection.collect(dry_run=False)
        assert report.expired_runs == 1
        assert await keys(there, f"runs/{uid}/") == []
        assert await keys(there, DELETED) == [f"{DELETED}{uid}"]
        assert await paid(there) == before


async def test_an_object_that_is_left_of_a_deleted_run_starts_no_other_one() -> None:
    async with place() as there:
        await there.join("w")
        uid = await ended(there)
        await delete(there, uid)
        left = Submission(workflow("flow", SPEC), uid=uid)
        with pytest.raises(SpecError, match="the run of this object was deleted"):
            await there.control.services.commands.submit(left)
