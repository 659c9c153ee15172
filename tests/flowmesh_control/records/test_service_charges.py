"""Records of what services paid on days that are over."""

from datetime import date

from flowmesh_control.records.keys import SERVICE_CHARGES, service_day_key
from flowmesh_control.records.service_charges import ServiceChargeRecords
from flowmesh_core.accounting.charges import ALL_DAYS, Days
from flowmesh_core.accounting.service_charges import ServiceCharges, ServiceDay
from flowmesh_store.store import Store

FIRST, SECOND, THIRD = (date(2026, 2, n) for n in (1, 2, 3))


def paid(day: date, nanousd: int) -> ServiceDay:
    return ServiceDay("team-a/ask", day, "gpu", 100, nanousd)


async def test_a_day_that_is_over_is_written_and_forgotten_and_bills_have_it(store: Store) -> None:
    rows = [paid(FIRST, 1), paid(SECOND, 2), paid(THIRD, 4)]
    latest = ServiceCharges(rows)
    records = ServiceChargeRecords(store.records, latest, epoch=1)
    await records.archive(latest.rows())
    assert latest.rows() == (paid(THIRD, 4),)
    assert await records.read(ALL_DAYS) == (rows[2:] + rows[:2], [])
    assert await records.read(Days(SECOND, THIRD)) == ([paid(SECOND, 2)], [])
    assert await records.read(Days(end=FIRST)) == ([], [])


async def test_a_leader_that_ended_before_it_forgot_a_day_does_not_count_it_twice(
    store: Store,
) -> None:
    rows = (paid(FIRST, 1), paid(SECOND, 2))
    await ServiceChargeRecords(store.records, ServiceCharges(rows), epoch=1).archive(rows)
    latest = ServiceCharges((paid(FIRST, 3), paid(SECOND, 2)))  # which the accounts had
    records = ServiceChargeRecords(store.records, latest, epoch=2)
    assert await records.read(ALL_DAYS) == ([paid(FIRST, 3), paid(SECOND, 2)], [])
    for _ in range(2):
        await records.archive(latest.rows())
    assert await records.read(ALL_DAYS) == ([paid(SECOND, 2), paid(FIRST, 3)], [])


async def test_a_damaged_day_and_a_stray_file_hide_nothing_else(store: Store) -> None:
    rows = (paid(FIRST, 1), paid(SECOND, 2), paid(THIRD, 4))
    latest = ServiceCharges(rows)
    records = ServiceChargeRecords(store.records, latest, epoch=1)
    await records.archive(rows)
    key = service_day_key(FIRST, 1)
    found = await store.records.read(key)
    assert found is not None
    await store.records.write(key, b"[{", if_match=found.etag)
    await store.records.write(f"{SERVICE_CHARGES}2026-13-01/1", b"[]")
    await store.records.write(f"{SERVICE_CHARGES}notes", b"mine")
    assert await records.read(ALL_DAYS) == ([paid(THIRD, 4), paid(SECOND, 2)], [key])
