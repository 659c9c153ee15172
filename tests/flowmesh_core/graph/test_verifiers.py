"""Lists of named checks that are wrong: where, what was expected, the nearest name."""

from typing import Any

import pytest
from tests.flowmesh_core.graph.steps import INPUTS

GRPO = {
    "uses": "train.grpo",
    "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
}


def grpo(*checks: Any, **more: Any) -> dict[str, Any]:
    return {**GRPO, "with": {"prompt": "{{ question }}", "reward_funcs": list(checks), **more}}


@pytest.mark.parametrize(
    "check",
    [
        {"name": "number-equals", "target": "target"},
        {"name": "number-equals", "target": "target", "tolerance": 0.5},
        {"name": "choice-equals", "target": "target", "choices": "question"},
        {"name": "equals", "target": "target", "normalize": True},
        {"name": "contains", "target": "target"},
        {"name": "matches", "pattern": "[0-9]+"},
        {"name": "json-valid"},
        {"name": "json-valid", "schema": {"type": "object"}},
        {"name": "length-at-most", "tokens": 32},
        {"name": "length-at-most", "characters": 0},
    ],
)
def test_a_check_with_valid_arguments_is_accepted(problems, check: dict[str, Any]) -> None:
    assert problems(grpo(check), inputs=INPUTS) == {}


@pytest.mark.parametrize(
    ("check", "path", "message"),
    [
        ("matches", "", "expected a check, such as {name: number-equals, target: answer}"),
        ({"name": "number-equal"}, ".name", "no check 'number-equal'; did you mean"),
        ({"name": "number-equals"}, "", "number-equals needs target: a column of the rows"),
        (
            {"name": "number-equals", "target": "targt"},
            ".target",
            "no column 'targt' in the rows; did you mean 'target'?",
        ),
        (
            {"name": "number-equals", "target": "target", "tolerance": -1},
            ".tolerance",
            "expected a number, at least 0",
        ),
        (
            {"name": "equals", "target": "target", "normalise": True},
            ".normalise",
            "equals has no argument 'normalise'; did you mean 'normalize'?",
        ),
        ({"name": "equals", "target": "target", "normalize": 1}, ".normalize", "expected true or"),
        ({"name": "matches", "pattern": "("}, ".pattern", "not a regular expression: missing )"),
        ({"name": "json-valid", "schema": {"type": "objekt"}}, ".schema", "no type 'objekt'"),
        ({"name": "length-at-most"}, "", "length-at-most takes exactly one of tokens and"),
        (
            {"name": "length-at-most", "tokens": 1, "characters": 1},
            "",
            "length-at-most takes exactly one of tokens and characters",
        ),
        ({"name": "length-at-most", "tokens": 1.5}, ".tokens", "expected a whole number"),
    ],
)
def test_an_invalid_check_is_refused_with_its_location(
    problems, check: Any, path: str, message: str
) -> None:
    [(place, found)] = problems(grpo({"name": "json-valid"}, check), inputs=INPUTS).items()
    assert place == f"spec.steps[0].with.reward_funcs[1]{path}"
    assert found.startswith(message)


def test_columns_are_checked_against_the_rows_even_if_the_engine_takes_all_rows_at_once(
    problems,
) -> None:
    found = problems(grpo(prompt="{{ qestion }}"), inputs=INPUTS)
    assert list(found) == ["spec.steps[0].with.prompt"]
