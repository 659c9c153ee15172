"""Charges divide a receipt by day and price, and lose nothing."""

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from flowmesh_api.v1.why import AttemptDetails, AttemptLine
from flowmesh_core.accounting.charges import Days, Payer, charges
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.units import Digest

NAME = Digest("0" * 64)
PAYER = Payer("u", "n", "team-a", {"team": "search"})
MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC).timestamp()


def attempt(time_s: float, paid: int, pool: str = "cpu", price: int = 100, **more: int) -> Line:
    ran = AttemptDetails(NAME, pool, "cpu", price, 0, 0, 0.0) if pool else None
    return AttemptLine(
        time_s, "a", -1, NAME, "x", "w", "i", "published", 2 * paid, paid, ran=ran, **more
    )


LINES = st.lists(
    st.builds(
        attempt,
        st.floats(MIDNIGHT - 200_000, MIDNIGHT + 200_000),
        st.integers(0, 10**12),
        st.sampled_from(["cpu", "gpu", ""]),
        st.integers(0, 3),
    )
)


@given(LINES, st.dates(date(2026, 1, 28), date(2026, 2, 5)))
def test_charges_add_up_to_the_receipt_however_a_period_is_divided(
    lines: list[Line], border: date
) -> None:
    paid = receipt("u", "n", "team-a", lines).paid_nanousd
    assert sum(c.paid_nanousd for c in charges(PAYER, lines)) == paid
    before, after = (charges(PAYER, lines, d) for d in (Days(end=border), Days(border)))
    assert sum(c.paid_nanousd for c in [*before, *after]) == paid


def test_an_attempt_counts_on_the_day_in_utc_in_which_it_ended() -> None:
    lines = [
        attempt(MIDNIGHT - 0.001, 1, tokens_in=5, tokens_out=2),
        StepLine(MIDNIGHT, "a", "Completed"),
        attempt(MIDNIGHT, 2),
        attempt(MIDNIGHT + 1, 3, load_nanousd=1),
        attempt(MIDNIGHT + 1, 4, price=200),
        attempt(MIDNIGHT + 1, 5, pool=""),
    ]
    found = charges(PAYER, lines)
    assert [(c.day, c.price_nanousd_per_hour, c.paid_nanousd, c.attempts) for c in found] == [
        ("2026-01-31", 100, 1, 1),
        ("2026-02-01", 100, 5, 2),
        ("2026-02-01", 200, 4, 1),
        ("2026-02-01", 0, 5, 1),
    ]
    assert [c.tokens for c in found] == [7, 0, 0, 0]
    assert [c.load_nanousd for c in found] == [0, 1, 0, 0]
    assert {(c.run, c.name, c.namespace, c.step) for c in found} == {("u", "n", "team-a", "a")}
    assert all(c.labels == {"team": "search"} for c in found)
