"""The final number of an answer."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_worker.engines.verifiers.final_number import final_number, same_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 + 4 = 7 apples.\n#### 7", "7"),
        ("The total is $1,234.50.", "1234.50"),
        ("1,234,567 people", "1234567"),
        ("1,2 and 3,45", "45"),
        ("12345,678", "678"),
        ("it falls to -5", "-5"),
        ("it falls to \u22125 degrees", "-5"),
        ("a debt of -$20.", "-20"),
        ("a debt of $-20.", "-20"),
        ("10-3", "3"),
        ("(2)-3", "3"),
        ("10 - 3", "3"),
        ("about 40%", "40"),
        ("0.5", "0.5"),
        ("it is .75.", "0.75"),
        ("x = 6.02e23", "6.02e23"),
        ("in 2020.", "2020"),
        ("007", "7"),
        ("**42**", "42"),
        ("no number at all", None),
        ("", None),
        ("-", None),
        (None, None),
        (True, None),
        (7, "7"),
        (-0.25, "-0.25"),
        (float("nan"), None),
        (["7"], None),
    ],
)
def test_the_last_number_counts(text: object, number: str | None) -> None:
    assert final_number(text) == (None if number is None else Decimal(number))


@given(st.integers(-(10**15), 10**15), st.text(alphabet="abc xyz.\n", max_size=20))
def test_a_number_is_found_after_any_words_in_any_notation(n: int, words: str) -> None:
    for written in (f"{n}", f"{n:,}", f"{n}.", f"{n:,} units", f"${n:,}", f"{n}.0"):
        assert final_number(f"{words} {written}") == n


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-1e9, max_value=1e9))
def test_decimals_are_read_exactly(n: Decimal) -> None:
    assert final_number(f"x {n:f}") == n
    assert final_number(f"x {n:,f} y") == n


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = final_number(text)
    assert found is None or found.is_finite()


def test_without_a_tolerance_numbers_must_be_the_same_and_with_one_they_may_differ_by_it() -> None:
    assert same_number(Decimal("3.50"), Decimal("3.5"))
    assert not same_number(Decimal("3.5001"), Decimal("3.5"))
    assert same_number(Decimal("3.6"), Decimal("3.5"), 0.1)
    assert not same_number(Decimal("3.61"), Decimal("3.5"), 0.1)
