"""Three tenants subscribe to one running action, and one of them cancels."""

from typing import Any

import pytest
from tests.failures.observe import done_units, ledger, status_of
from tests.flowmesh_control.fabric import Fabric, workflow
from tests.flowmesh_control.test_end_to_end import accounts, paid
from tests.flowmesh_store.published import published

from flowmesh_api.v1.why import AttemptLine

pytestmark = pytest.mark.slow
TEAMS = ("team-a", "team-b", "team-c")


def counting() -> dict[str, Any]:
    params = {"steps": 100, "stepSeconds": 0.02, "value": "ours"}
    step = {"name": "count", "uses": "test.steps", "with": params}
    return workflow("ours", {"steps": [step], "outputs": {"result": "count.metrics"}})


async def test_cancelling_one_of_three_stops_nothing_and_the_others_pay_equally(
    fabric: Fabric,
) -> None:
    group = {"name": "g", "scope": "group", "group": "x", "namespaces": list(TEAMS)}
    await fabric.call("PUT", "/v1/policies", body=[group])
    fabric.worker("local-w1")
    uids = [await fabric.submit(counting(), namespace=team) for team in TEAMS]
    for uid in uids:
        await done_units(fabric, uid, 5)
    # The first one: its subscription made the action, and its tenant is accounted in the order.
    await fabric.call("POST", f"/v1/runs/{uids[0]}/cancel")
    ends = [await fabric.ended(uid) for uid in uids]
    assert [end.phase for end in ends] == ["Cancelled", "Succeeded", "Succeeded"]
    receipts = [await paid(fabric, uid) for uid in uids]
    assert receipts[0].paid_nanousd == 0
    assert receipts[1].paid_nanousd > 0
    assert abs(receipts[1].paid_nanousd - receipts[2].paid_nanousd) <= 1
    lines = [line for uid in uids for line in ledger(fabric, uid) if isinstance(line, AttemptLine)]
    assert len({line.attempt_id for line in lines}) == 1, "it ran once"
    assert {line.units for line in lines} == {100}
    assert (await status_of(fabric, uids[1])).executed == 1
    totals = await accounts(fabric)
    assert totals.receipts_nanousd == sum(r.paid_nanousd for r in receipts)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd


async def test_when_the_last_subscriber_leaves_the_action_stops_and_that_subscriber_pays(
    fabric: Fabric,
) -> None:
    group = {"name": "g", "scope": "group", "group": "x", "namespaces": list(TEAMS)}
    await fabric.call("PUT", "/v1/policies", body=[group])
    fabric.worker("local-w1")
    uids = [await fabric.submit(counting(), namespace=team) for team in TEAMS]
    for uid in uids:
        await done_units(fabric, uid, 5)
    for uid in uids:
        await fabric.call("POST", f"/v1/runs/{uid}/cancel")
    ends = [await fabric.ended(uid) for uid in uids]
    assert [end.phase for end in ends] == ["Cancelled"] * 3
    receipts = [(await paid(fabric, uid)).paid_nanousd for uid in uids]
    assert receipts[:2] == [0, 0]
    assert receipts[2] > 0
    assert not published(fabric.root / "store")
