"""One damaged ledger costs its run's receipt, not the page."""

import msgspec
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.test_damaged_records import damage

from flowmesh_api.v1.receipts import ReceiptPage


async def ended(there: Place, value: str) -> str:
    worker = there.workers[0]
    count = len(worker.assigned)
    uid = await there.submit(value, noop(value))
    attempt = (await worker.given(count + 1))[count]
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id),))
    await there.ended(uid)
    return uid


async def test_a_run_whose_ledger_is_damaged_is_named_beside_the_receipts_of_the_others() -> None:
    async with place() as there:
        await there.join("w")
        bad, good = await ended(there, "bad"), await ended(there, "good")
        records = there.store.records
        for key in [key async for key in records.keys(f"runs/{bad}/ledger/")]:
            await damage(records, key)
        await there.lead_anew()
        page = msgspec.json.decode(await there.get("/v1/receipts"), type=ReceiptPage)
        assert [receipt.uid for receipt in page.receipts] == [good]
        assert page.unreadable == (bad,)
