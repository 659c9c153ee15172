"""The choice that a completion names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_worker.engines.eval.choice_text import LETTERS, read_choice

CITIES = ["Paris", "Lyon", "New York", "York"]
NUMBERS = ["5", "-5", "1.5", "15"]


@pytest.mark.parametrize(
    ("completion", "choices", "index"),
    [
        ("B", CITIES, 1),
        (" b. ", CITIES, 1),
        ("(B)", CITIES, 1),
        ("**B**", CITIES, 1),
        ("E", CITIES, None),
        ("paris", CITIES, 0),
        ("B) Lyon", CITIES, 1),
        ("B. It is not Paris", CITIES, 1),
        ("The answer is C.", CITIES, 2),
        ("The answer is C because of its size", CITIES, 2),
        ("Answer: (D)", CITIES, 3),
        ("The answer is A? No: the answer is B.", CITIES, 1),
        ("The answer is a city", CITIES, None),
        ("A city in France", CITIES, None),
        ("I think that it is Lyon, of course", CITIES, 1),
        ("It is Lyon or Paris", CITIES, None),
        ("It is New York", CITIES, 2),
        ("New York, or rather York", CITIES, None),
        ("Parisian", CITIES, None),
        ("", CITIES, None),
        ("5", NUMBERS, 0),
        ("-5", NUMBERS, 1),
        ("it is -5.", NUMBERS, 1),
        ("it is 1.5", NUMBERS, 2),
        ("it is 15", NUMBERS, 3),
        ("it is 5.", NUMBERS, 0),
        ("it is 25", NUMBERS, None),
    ],
)
def test_a_choice_is_read_from_a_completion(
    completion: str, choices: list[str], index: int | None
) -> None:
    assert read_choice(completion, choices) == index


@given(
    st.lists(st.sampled_from(["oak", "elm tree", "fir", "ash", "yew"]), min_size=2, unique=True),
    st.data(),
)
def test_a_letter_or_the_text_of_a_choice_selects_it_at_any_position(
    choices: list[str], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(choices) - 1))
    for said in (LETTERS[index], choices[index], f"So the answer is {LETTERS[index]}."):
        assert read_choice(said, choices) == index


@given(st.text(), st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True))
def test_reading_any_text_raises_no_error(text: str, choices: list[str]) -> None:
    found = read_choice(text, choices)
    assert found is None or 0 <= found < len(choices)
