"""``GET /v1/charges``: what runs paid, by step and day, for those who may list the runs."""

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_api.v1.charges import Charge, ChargePage
from flowmesh_api.v1.receipts import ReceiptPage

USERS = {"root": {"*": EDIT}, "ada": {"team-a": EDIT}}


async def ended(there: Place, value: str, **metadata: object) -> str:
    """Runs one action on the first worker."""
    worker = there.workers[0]
    count = len(worker.assigned)
    uid = await there.submit(value, noop(value), **metadata)
    attempt = (await worker.given(count + 1))[count]
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id),))
    await there.ended(uid)
    return uid


async def charges(there: Place, query: str = "", token: str = "") -> list[Charge]:
    data = await there.get(f"/v1/charges?{query}", token)
    page = msgspec.json.decode(data, type=ChargePage)
    assert (page.next, page.unreadable) == ("", ())
    return page.charges


async def test_charges_add_up_to_the_receipts_and_each_tenant_sees_its_own() -> None:
    async with place(users=TableOfUsers(USERS)) as there:
        there.token = "root-token"
        await there.join("w")
        labels = {"team": "search", "cost-center": "42"}
        ours = await ended(there, "ours", namespace="team-a", labels=labels)
        theirs = await ended(there, "theirs", namespace="team-b")
        found = await charges(there)
        receipts = msgspec.json.decode(await there.get("/v1/receipts"), type=ReceiptPage).receipts
        paid = {r.uid: r.paid_nanousd for r in receipts}
        assert {c.run: c.paid_nanousd for c in found} == paid
        assert sum(paid.values()) > 0
        assert [(c.run, c.namespace, c.name, c.step, c.pool, c.labels) for c in found] == [
            (ours, "team-a", "ours", "one", "good", labels),
            (theirs, "team-b", "theirs", "one", "good", {}),
        ]
        assert [c.run for c in await charges(there, token="ada-token")] == [ours]
        assert await charges(there, "namespace=team-b", "ada-token") == []
        assert await charges(there, f"run={theirs}", "ada-token") == []
        assert [c.run for c in await charges(there, f"run={theirs}")] == [theirs]
        day = found[0].day
        assert await charges(there, f"until={day}") == []
        assert await charges(there, f"since={day}") == found
        with pytest.raises(AssertionError, match="is not a day"):
            await there.get("/v1/charges?since=yesterday")
