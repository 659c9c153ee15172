"""The verifiers: completions that pass, that fail, and rows without a target."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.catalog.verifiers import VERIFIERS
from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.verifiers.final_choice import LABELS, final_choice
from flowmesh_worker.engines.verifiers.verifiers import JudgedCompletion, compile_checks

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def judged(check: dict[str, Any], text: str, tokens: int = 3, **row: Any) -> float | None:
    (compiled,) = compile_checks([check])
    assert compiled.name == check["name"]
    return compiled.judge(JudgedCompletion(text, tokens), row)


@pytest.mark.parametrize(
    ("check", "text", "target", "score"),
    [
        ({"name": "number-equals"}, "2 + 2 = 4.", "#### 4", 1.0),
        ({"name": "number-equals"}, "2 + 2 = 5", 4, 0.0),
        ({"name": "number-equals"}, "none", 4, 0.0),
        ({"name": "number-equals"}, "4", "none", None),
        ({"name": "number-equals"}, "4", None, None),
        ({"name": "number-equals", "tolerance": 0.5}, "4.4", 4, 1.0),
        ({"name": "choice-equals"}, "The answer is (B).", "B", 1.0),
        ({"name": "choice-equals"}, "B) Paris", 1, 1.0),
        ({"name": "choice-equals"}, "A cat sat.", "A", 0.0),
        ({"name": "choice-equals"}, "A", None, None),
        ({"name": "equals"}, " Paris\n", "Paris", 1.0),
        ({"name": "equals"}, "paris.", "Paris", 0.0),
        ({"name": "equals", "normalize": True}, "paris.", "Paris", 1.0),
        ({"name": "equals"}, "7", 7, 1.0),
        ({"name": "equals"}, "", None, None),
        ({"name": "contains"}, "It is Paris.", "Paris", 1.0),
        ({"name": "contains"}, "It is PARIS.", "Paris", 0.0),
        ({"name": "contains", "normalize": True}, "It is NEW\nYORK.", "New York", 1.0),
        ({"name": "contains"}, "anything", "", None),
    ],
)
def test_a_completion_is_compared_with_its_target(
    check: dict[str, Any], text: str, target: Any, score: float | None
) -> None:
    assert judged({**check, "target": "t"}, text, t=target) == score


@pytest.mark.parametrize(
    ("check", "text", "score"),
    [
        ({"name": "matches", "pattern": r"<b>.*</b>\Z"}, "so <b>4</b>", 1.0),
        ({"name": "matches", "pattern": r"\A[0-9]+\Z"}, "so 4", 0.0),
        ({"name": "json-valid"}, '{"a": 1}', 1.0),
        ({"name": "json-valid"}, '```json\n{"a": 1}\n```', 1.0),
        ({"name": "json-valid"}, '{"a": 1} so', 0.0),
        ({"name": "json-valid"}, "", 0.0),
        ({"name": "json-valid"}, "NaN", 0.0),
        ({"name": "json-valid", "schema": PERSON}, '{"age": 3}', 1.0),
        ({"name": "json-valid", "schema": PERSON}, '{"age": "3"}', 0.0),
        ({"name": "length-at-most", "tokens": 3}, "abc", 1.0),
        ({"name": "length-at-most", "tokens": 2}, "abc", 0.0),
        ({"name": "length-at-most", "characters": 3}, "abc", 1.0),
        ({"name": "length-at-most", "characters": 2}, "abc", 0.0),
    ],
)
def test_a_completion_is_scored_without_a_target(
    check: dict[str, Any], text: str, score: float
) -> None:
    assert judged(check, text) == score


def test_every_verifier_of_the_catalogue_has_its_function() -> None:
    least = {
        "number-equals": {"target": "t"},
        "choice-equals": {"target": "t"},
        "equals": {"target": "t"},
        "contains": {"target": "t"},
        "matches": {"pattern": "."},
        "json-valid": {},
        "length-at-most": {"tokens": 1},
    }
    assert set(least) == set(VERIFIERS)
    for name, args in least.items():
        assert judged({"name": name, **args}, "x", t="x") in {None, 0.0, 1.0}


def test_a_schema_that_points_outside_is_refused_and_nothing_is_fetched() -> None:
    with pytest.raises(AttemptError, match=r"refers to .http"):
        judged({"name": "json-valid", "schema": {"$ref": "http://127.0.0.1:9/s.json"}}, "{}")


def test_a_choice_is_read_by_its_letter_its_number_or_its_text() -> None:
    check = {"name": "choice-equals", "target": "t", "choices": "c"}
    colours = ["red", "blue", "green"]
    for target in ("B", 1, "blue"):
        for text in ("B", "(B)", "Blue.", "The answer is B", "It is blue."):
            assert judged(check, text, t=target, c=colours) == 1.0
        assert judged(check, "C", t=target, c=colours) == 0.0
        assert judged(check, "red or blue", t=target, c=colours) == 0.0
    assert judged(check, "B", t=7, c=colours) is None
    assert judged(check, "B", t="B", c=None) is None


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("C", "C"),
        ("C.", "C"),
        ("(C) because A is wrong.", "C"),
        ("**D**", "D"),
        ("Answer: b is wrong, the answer is C", "C"),
        ("First I thought (A), then (B).", "B"),
        ("the correct choice is $\\mathbf D", None),
        ("I think that A cat is B cat", None),
        ("Because", None),
        ("", None),
    ],
)
def test_the_final_choice_of_an_answer_is_found(text: str, label: str | None) -> None:
    assert final_choice(text) == label


@given(st.sampled_from(LABELS), st.text(alphabet="abc xyz", max_size=20))
def test_an_explicit_choice_is_found_after_any_words(label: str, words: str) -> None:
    for said in ("the answer is {}", "Answer: ({})", "so the answer is **{}**.", "({})"):
        assert final_choice(f"{words} {said.format(label)}") == label


@given(st.text(max_size=60))
def test_scoring_any_text_raises_no_error(text: str) -> None:
    for check in (
        {"name": "number-equals", "target": "t"},
        {"name": "choice-equals", "target": "t"},
        {"name": "json-valid", "schema": PERSON},
    ):
        assert judged(check, text, t="B) 4") in {0.0, 1.0}


def test_a_pattern_that_never_ends_is_reported_and_does_not_block_its_host() -> None:
    with pytest.raises(AttemptError, match="for more than 1 s"):
        judged({"name": "matches", "pattern": r"\A((a|aa)+)+\Z"}, "a" * 60 + "b")
