"""What services paid, by day: nothing is lost when a day is archived, or a leader ends."""

from collections import Counter
from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.accounting.charges import service_charge
from flowmesh_core.accounting.service_charges import ServiceCharges, ServiceDay, days_over

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
LAST_DAY = date(2026, 1, 31)


def test_amounts_are_kept_by_service_day_pool_and_price() -> None:
    charges = ServiceCharges()
    charges.add("team-a/ask", "gpu", 100, 1, MIDNIGHT - 0.001)
    charges.add("team-a/ask", "gpu", 100, 2, MIDNIGHT)
    charges.add("team-a/ask", "gpu", 200, 4, MIDNIGHT)
    charges.add("team-b/ask", "cpu", 100, 8, MIDNIGHT)
    charges.add("team-a/ask", "gpu", 100, 16, MIDNIGHT - 5.0)
    rows = charges.rows()
    assert rows == (
        ServiceDay("team-a/ask", LAST_DAY, "gpu", 100, 1),
        ServiceDay("team-a/ask", date(2026, 2, 1), "gpu", 100, 18),
        ServiceDay("team-a/ask", date(2026, 2, 1), "gpu", 200, 4),
        ServiceDay("team-b/ask", date(2026, 2, 1), "cpu", 100, 8),
    ), "a clock that is set back adds to no day that is over"
    charge = service_charge(rows[-1])
    assert (charge.namespace, charge.name, charge.run, charge.step) == ("team-b", "ask", "", "")
    assert (charge.day, charge.pool, charge.paid_nanousd) == ("2026-02-01", "cpu", 8)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.floats(-90_000, 90_000), st.integers(0, 10**9)),
        st.sampled_from(["archive", "restart"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_days_that_are_archived_and_the_rest_are_all_that_services_paid(
    steps: list[tuple[float, int] | str],
) -> None:
    charges, stored = ServiceCharges(), dict[date, list[ServiceDay]]()
    now_s, paid = MIDNIGHT, 0
    for step in steps:
        if step == "archive":
            over = days_over(charges.rows())
            stored |= over
            for day in over:
                charges.forget(day)
        elif step == "restart":
            charges = ServiceCharges(charges.rows())
        else:
            after_s, nanousd = step
            now_s, paid = now_s + float(after_s), paid + int(nanousd)
            charges.add("team-a/ask", "gpu", 100, int(nanousd), now_s)
    by_day = Counter[date]()
    for row in [*charges.rows(), *(r for rows in stored.values() for r in rows)]:
        by_day[row.day] += row.paid_nanousd
    assert by_day.total() == paid
    assert set(stored).isdisjoint(row.day for row in charges.rows())
