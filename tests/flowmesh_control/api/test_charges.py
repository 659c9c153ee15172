"""``GET /v1/charges``: what runs and services paid by day, for those who may list them."""

import msgspec
import pytest
from tests.attacks.by_hand import Place, end_of, noop, place, until
from tests.flowmesh_control.fabric import API_TOKEN, machine_of
from tests.flowmesh_control.rights import EDIT, TableOfUsers

from flowmesh_api.v1.charges import Charge, ChargePage
from flowmesh_api.v1.receipts import ReceiptPage
from flowmesh_core.catalog.builtin.code import COMPONENT
from flowmesh_core.protocol.messages import EngineVersion, ServingReplicaState

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


SERVICE = {
    "apiVersion": "flowmesh.dev/v1alpha1",
    "kind": "FlowMeshService",
    "metadata": {"name": "ask", "namespace": "team-a"},
    "spec": {
        "components": {"one": {"python": {"code": "def compute(batch):\n    return batch"}}},
        "stages": [{"name": "made", "component": "one", "inputs": {"x": "request.x"}}],
        "reply": {"y": "made"},
    },
}


async def test_services_and_runs_on_one_worker_pay_all_that_it_costs() -> None:
    async with place(users=TableOfUsers(USERS)) as there:
        there.token = "root-token"
        engines = {COMPONENT.name: COMPONENT.versions, "test.noop": EngineVersion(1, 1)}
        shape = {"engines": engines, "device_memory_mib": 4096, "allows_user_code": True}
        worker = await there.join("w", shape={**shape, "sandbox": "landlock"}, replicas=())
        await there.post("/v1/services", {"document": SERVICE})
        await until(lambda: worker.replicas)
        (one,) = worker.replicas or ()
        opening = one.opening
        state = ServingReplicaState(
            one.replica_id,
            "ready",
            signature=opening.signature,
            memory_mib=opening.memory_mib,
            token=opening.token,
        )
        await worker.sync(replicas=(state,))
        run = await ended(there, "ours", namespace="team-b")
        money = machine_of(there.control).state
        await until(lambda: money.book.services_nanousd)
        found = await charges(there)
        (ask,) = [c for c in found if not c.run]
        assert (ask.namespace, ask.name, ask.pool, ask.step) == ("team-a", "ask", "good", "")
        services = sum(row.paid_nanousd for row in money.service_charges.rows())
        runs = sum(c.paid_nanousd for c in found if c.run)
        assert money.book.unsettled_nanousd == 0
        assert services + runs + money.book.fabric_nanousd == money.book.bill_nanousd
        assert [c.run for c in await charges(there, "namespace=team-b")] == [run]
        assert [c.name for c in await charges(there, token="ada-token")] == ["ask"]
        assert [c.run for c in await charges(there, f"run={run}")] == [run]
        assert await charges(there, f"until={ask.day}") == []
        await there.lead_anew()
        (after,) = [c for c in await charges(there, token=API_TOKEN) if not c.run]
        assert after.paid_nanousd >= ask.paid_nanousd, "a new leader continues the day"
