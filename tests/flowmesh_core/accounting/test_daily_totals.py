"""What was added in the last day, counted by the hour."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.accounting.daily_totals import HOUR_S, DailyTotals

DAY_S = 24 * HOUR_S
NOON_S = 1_000_000 * HOUR_S + 1800.0


def test_an_amount_counts_for_24_to_25_hours() -> None:
    totals = DailyTotals()
    totals.add("a", 5, NOON_S)
    totals.add("a", 2, NOON_S + HOUR_S)
    assert totals.total("a", NOON_S + DAY_S) == 7
    assert totals.total("a", NOON_S + DAY_S + HOUR_S / 2) == 2
    assert totals.total("b", NOON_S) == 0


def test_it_says_when_the_total_is_below_a_limit() -> None:
    totals = DailyTotals()
    totals.add("a", 5, NOON_S)
    totals.add("a", 2, NOON_S + HOUR_S)
    assert totals.wait_s("a", 8, NOON_S + HOUR_S) == 0.0
    assert totals.wait_s("a", 7, NOON_S + HOUR_S) == DAY_S - HOUR_S / 2
    assert totals.wait_s("a", 2, NOON_S + HOUR_S) == DAY_S + HOUR_S / 2


@given(
    st.lists(st.tuples(st.integers(0, 40 * HOUR_S), st.integers(0, 100)), max_size=30),
    st.integers(1, 500),
)
def test_after_the_wait_the_total_is_below_the_limit_and_no_sooner(
    added: list[tuple[int, int]], most: int
) -> None:
    totals, now_s = DailyTotals(), 0.0
    for now_s, amount in sorted(added):
        totals.add("a", amount, now_s)
    wait_s = totals.wait_s("a", most, now_s)
    assert totals.total("a", now_s + wait_s) < most
    if wait_s:
        assert totals.total("a", now_s + wait_s - 1.0) >= most


def test_a_restart_continues_and_forgets_what_no_longer_counts() -> None:
    totals = DailyTotals()
    totals.add("a", 5, NOON_S)
    totals.add("b", 1, NOON_S + DAY_S)
    kept = msgspec.json.encode(totals.current(NOON_S + DAY_S))
    again = DailyTotals(msgspec.json.decode(kept, type=dict[str, dict[int, int]]))
    assert again.total("a", NOON_S + DAY_S) == 5
    assert again.current(NOON_S + DAY_S + HOUR_S) == {"b": {1_000_024: 1}}
