"""The verdict that is parsed from a judge's answer, or none."""

from typing import Any

import pytest

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.llm.verdicts import Verdicts

JSON = {"jsonSchema": {"type": "object"}}


@pytest.mark.parametrize(
    ("params", "answer", "verdict"),
    [
        ({}, " 7.5\n", 7.5),
        ({}, "about 7", None),
        ({}, "nan", None),
        ({"pattern": r"(\d+)/10"}, "first 3/10, no: 8/10, I mean it", 8.0),
        ({"pattern": r"(\d+)/10"}, "eight", None),
        ({"pattern": r"Score: (\w+)"}, "Score: high", None),
        ({"labels": ["Good", "Bad"]}, "**good.**", "Good"),
        ({"labels": ["Good", "Bad"]}, "good or bad", None),
        ({"labels": ["A", "B"], "pattern": r"Verdict: (\w)"}, "A? B? Verdict: b", "B"),
        ({**JSON}, '{"score": 3, "why": "x"}', 3.0),
        ({**JSON}, '{"score": true}', None),
        ({**JSON}, '{"score": "3', None),
        ({**JSON, "key": "side", "labels": ["left"]}, '{"side": "Left"}', "left"),
    ],
)
def test_a_verdict_is_one_of_the_requested_values_or_null(
    params: dict[str, Any], answer: str, verdict: Any
) -> None:
    assert Verdicts(params).read(answer) == verdict


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"pattern": r"\d+"}, "has 0 groups"),
        ({"pattern": r"(\d)(\d)"}, "has 2 groups"),
        ({"pattern": r"(\d)", **JSON}, "either pattern or jsonSchema"),
        ({"labels": ["Yes", "yes."]}, "differ only in case"),
    ],
)
def test_incompatible_parameters_are_refused(params: dict[str, Any], said: str) -> None:
    with pytest.raises(AttemptError, match=said):
        Verdicts(params)


def test_a_pattern_that_never_ends_fails_only_its_own_action() -> None:
    with pytest.raises(AttemptError, match="searches an answer for more than 1 s"):
        Verdicts({"pattern": r"((?:a|aa)+)[bc]$"}).read("a" * 60 + "d")
