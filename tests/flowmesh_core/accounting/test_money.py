"""Laws of money: nothing is lost between a worker's bill and the shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.accounting.meter import Activity, WorkerMeter, split_segment
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.units import Digest, nano_usd, split_exactly, usd_text

amounts = st.integers(0, 10**15)


@given(amounts, st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_a_split_adds_up_and_a_smaller_weight_never_gets_more(
    amount: int, weights: list[int]
) -> None:
    shares = split_exactly(amount, weights)
    assert sum(shares) == amount
    for w, s in zip(weights, shares, strict=True):
        assert s >= 0
        assert s == 0 or w > 0 or not any(weights)


@given(
    st.integers(0, 10**13),
    st.lists(st.floats(0, 10**6, allow_nan=False), min_size=1, max_size=30),
)
def test_a_meter_bills_price_times_lifetime_whenever_it_is_read(
    price: int, times: list[float]
) -> None:
    meter = WorkerMeter(price, 0.0)
    handed_out = sum(meter.advance(t) for t in times)
    assert handed_out == meter.billed_nanousd
    assert handed_out == price * round(max(times) * 1e9) // (3600 * 10**9)


@given(
    amounts,
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.builds(Activity, st.sampled_from("abc"), st.booleans(), st.integers(0, 1000)),
        max_size=12,
    ),
)
def test_a_segment_splits_into_execution_loading_and_fabric_exactly(
    amount: int, active: dict[str, Activity]
) -> None:
    shares = split_segment(amount, active)
    total = sum(shares.execution.values()) + sum(shares.loading.values()) + shares.fabric
    assert total == amount
    assert bool(active) == (shares.fabric == 0) or amount == 0


def test_waiting_for_a_load_is_charged_only_while_no_attempt_runs_in_that_instance() -> None:
    shares = split_segment(
        100,
        {
            "runs": Activity("lane", running=True, units=3),
            "also": Activity("lane", running=True, units=1),
            "waits": Activity("lane", running=False, units=0),
        },
    )
    assert shares.execution == {"runs": 75, "also": 25}
    assert shares.loading == {}


def test_a_receipt_names_amounts_paid_and_saved_and_the_runs_it_shared_with() -> None:
    name = Digest("0" * 64)
    lines = [
        AttemptLine(1.0, "a", -1, name, "x", "w", "i", "published", 100, 50, sharers=2),
        AttemptLine(1.0, "a", -1, name, "y", "w", "i", "bad-input", 10, 10),
        HitLine(2.0, "b", -1, name, "published", 70, producer="run-1"),
        HitLine(2.0, "b", 1, name, "in-flight", 30, sharers=("run-2",)),
    ]
    made = receipt("u", "n", "team-a", lines)
    assert (made.paid_nanousd, made.saved_nanousd) == (60, 100)
    assert (made.executed, made.hits) == (1, 1)
    first, second = made.lines
    assert (first.failed_attempts, first.executed) == (1, 1)
    assert second.shared_with == ("run-1", "run-2")
    assert second.in_flight == 1


def test_dollars_are_read_and_written_exactly() -> None:
    assert nano_usd("0.50") == 500_000_000
    assert usd_text(nano_usd("0.000123")) == "$0.000123"


@pytest.mark.parametrize(
    ("usd", "text"),
    [("0", "$0"), ("1.25", "$1.25"), ("0.05", "$0.0500"), ("0.0000004", "$0.000000400")],
)
def test_an_amount_is_written_with_as_many_places_as_it_needs(usd: str, text: str) -> None:
    assert usd_text(nano_usd(usd)) == text
