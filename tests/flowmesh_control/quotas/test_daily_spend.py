"""What a namespace paid in a day, across leaders."""

from typing import Any

from tests.attacks.by_hand import Place, end_of, place, until
from tests.flowmesh_control.fabric import machine_of

TWO = {
    "steps": [
        {"name": "one", "uses": "test.noop", "with": {"value": "one"}},
        {"name": "two", "uses": "test.noop", "with": {"value": "two"}},
    ]
}
DEAR: dict[str, Any] = {"price_nanousd_per_hour": 10**13}


def paid(there: Place) -> int:
    totals = machine_of(there.control).state.daily_spend
    return totals.total("team-a", there.control.services.epoch.now_s())


async def half_done(there: Place) -> int:
    """Runs one of two steps; returns what it cost."""
    worker = await there.join("one", shape=DEAR)
    await there.submit("two", TWO)
    attempt = (await worker.given(2))[0]
    await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id, token=attempt.token),))
    await until(lambda: paid(there))
    cost = paid(there)
    assert cost == machine_of(there.control).state.book.receipts_nanousd > 0
    return cost


async def test_a_new_leader_continues_the_day() -> None:
    async with place() as there:
        cost = await half_done(there)
        await there.lead_anew()
        assert paid(there) == cost


async def test_what_the_accounts_do_not_count_is_added_from_the_ledgers() -> None:
    async with place() as there:
        cost = await half_done(there)
        await there.control.stop()
        keys = [key async for key in there.store.records.keys("accounts/")]
        for key in keys:
            await there.store.sweepable_records.delete(key, older_than_s=0.0)
        await there.lead_anew()
        assert paid(there) == cost
