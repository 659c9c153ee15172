"""Texts that satisfy a JSON schema, and the limits of a check."""

import json
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.json_schemas import JsonSchema

WHERE = "with.jsonSchema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
HELD: list[tuple[str, Any, str, str]] = [
    ("not", {"type": "integer", "not": {"const": 3}}, "4", "3"),
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 5}]}, "5", "4"),
    ("length", {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, '"abc"', '"abcd"'),
    ("least", {"type": "string", "pattern": "^a+$", "minLength": 2}, '"aa"', '"a"'),
    ("oneOf", {"oneOf": [{"minimum": 1}, {"maximum": 3}]}, "4", "2"),
    ("if", {"if": {"type": "string"}, "then": {"minLength": 2}}, "1", '"a"'),
    ("unique", {"type": "array", "uniqueItems": True}, "[1, true]", "[1, 1.0]"),
    ("contains", {"contains": {"const": 1}}, "[0, 1]", "[0]"),
    ("names", {"propertyNames": {"maxLength": 1}}, '{"a": 1}', '{"ab": 1}'),
    ("patternProperties", {"patternProperties": {"^n": {"type": "null"}}}, '{"n": null}',
     '{"n": 1}'),
    ("additional", {"patternProperties": {"^a": {}}, "additionalProperties": False}, '{"a": 1}',
     '{"b": 1}'),
    ("more", {"properties": {"a": {}}, "additionalProperties": {"type": "null"}},
     '{"a": 1, "b": null}', '{"b": 1}'),
    ("dependentRequired", {"dependentRequired": {"a": ["b"]}}, '{"b": 1}', '{"a": 1}'),
    ("multipleOf", {"multipleOf": 0.5}, "1.5", "1.2"),
    ("reference", {"$defs": {"n": {"minimum": 0}}, "items": {"$ref": "#/$defs/n"}}, "[1]", "[-1]"),
    ("draft 7", {"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, "{}", '{"a": 1}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "good", "bad"), [row[1:] for row in HELD], ids=[r[0] for r in HELD]
)
def test_every_keyword_is_checked_even_if_the_grammar_does_not_support_it(
    schema: Any, good: str, bad: str
) -> None:
    held = JsonSchema(schema, WHERE)
    assert held.problem_of_text(good) == ""
    assert held.problem_of_text(bad).startswith("at $")


@pytest.mark.parametrize(
    "text", ["", '{"a": 1', "NaN", "[Infinity]", '"a\nb"', "1 2", "[" * 100_000]
)
def test_a_text_that_is_not_json_satisfies_nothing(text: str) -> None:
    assert JsonSchema({}, WHERE).problem_of_text(text).startswith("it is not JSON: ")


def test_the_problem_names_its_place_in_the_text() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    problem = JsonSchema(schema, WHERE).problem_of_text('{"a": [1, "x"]}')
    assert problem == "at $.a[1]: 'x' is not of type 'integer'"


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\u00e9$", "é", "e"),
        (r"^\\u00e9$", r"\u00e9", "é"),
        (r"^a$", "a", "a\n"),
        (r"b", "abc", "ac"),
    ],
)
def test_patterns_have_json_schema_semantics(pattern: str, good: str, bad: str) -> None:
    held = JsonSchema({"pattern": pattern}, WHERE)
    assert not held.problem_of_text(json.dumps(good))
    assert held.problem_of_text(json.dumps(bad))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"maxLength": "3"}, r"cannot be used: \$\.maxLength: '3' is not of type 'integer'"),
        ({"pattern": "(?=a)"}, "not a regular expression of RE2"),
        ({"$ref": "http://127.0.0.1:9/s.json"}, "refers to 'http://127.0.0.1:9/s.json'"),
        ({"unevaluatedProperties": False, "patternProperties": {}}, "cannot be combined with"),
        (
            {"x": {"$schema": "https://json-schema.org/draft/2020-12/schema"}, "$ref": "#/x"},
            r"\$schema is allowed only at the top level",
        ),
    ],
)
def test_an_unsupported_schema_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(AttemptError, match=said) as caught:
        JsonSchema(schema, WHERE).problem_of_text('"aaaa"')
    assert caught.value.failure.message.startswith(WHERE)
    assert caught.value.failure.remedy


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "additionalProperties"])
def test_a_pattern_that_would_backtrack_for_ever_is_searched_in_linear_time(keyword: str) -> None:
    text = "a" * 50_000 + "b"
    schema: dict[str, Any] = {
        "pattern": {"pattern": "^(a+)+$"},
        "patternProperties": {"patternProperties": {"^(a+)+$": False}},
        "additionalProperties": {
            "patternProperties": {"^(a+)+$": {}},
            "additionalProperties": False,
        },
    }
    value: Any = text if keyword == "pattern" else {text: 1}
    problem = JsonSchema(schema[keyword], WHERE).problem_of(value, len(text))
    assert bool(problem) is (keyword != "patternProperties")


def test_a_pattern_of_very_many_parts_is_refused_and_others_count_for_each_character() -> None:
    with pytest.raises(AttemptError, match="has 120,004 parts"):
        JsonSchema({"pattern": "(a?){500}" * 60}, WHERE).problem_of_text('"a"')
    many = JsonSchema({"allOf": [{"pattern": "(a?){500}" * 9}] * 2000}, WHERE)
    with pytest.raises(AttemptError, match="takes more than"):
        many.problem_of_text(json.dumps("a" * 2000))
    assert JsonSchema({"pattern": "^.{1,1000}$"}, WHERE).problem_of_text(f'"{"x" * 900}"') == ""


@pytest.mark.parametrize("schema", [{"pattern": "a$"}, {"patternProperties": {"a$": False}}])
def test_half_a_surrogate_pair_in_a_text_is_no_error_of_the_engine(schema: Any) -> None:
    text = '{"\\ud800": 1}' if "patternProperties" in schema else '"\\ud800a"'
    assert JsonSchema(schema, WHERE).problem_of_text(text) == ""


def test_steps_are_counted_and_bounded() -> None:
    def text(depth: int) -> str:
        return "[" * depth + "2" + "]" * depth

    nested = {"items": {"$ref": "#/$defs/either"}, "type": "array", "minItems": 1}
    either = {"anyOf": [nested, {**nested, "maxItems": 1}, {"const": 1}]}
    held = JsonSchema({"$defs": {"either": either}, "$ref": "#/$defs/either"}, WHERE)
    assert held.problem_of_text(text(4)).startswith("at $")
    with pytest.raises(AttemptError, match=r"takes more than 10,610 steps to check"):
        held.problem_of_text(text(30))


def test_the_check_of_a_schema_that_only_refers_to_itself_ends() -> None:
    assert JsonSchema({"$ref": "#"}, WHERE).problem_of_text("1") == (
        "it is nested too deeply to be checked"
    )


NAMES = {"name": {"type": "string", "maxLength": 9}, "tags": {"items": {"enum": ["a", "b"]}}}
KINDS = [
    {"properties": {"kind": {"const": f"k{n}"}, "n": {"type": "integer"}}, "required": ["kind"]}
    for n in range(30)
]
HONEST: dict[str, tuple[Any, Any]] = {
    "a long table": (
        {"properties": NAMES, "required": [*NAMES], "additionalProperties": False},
        [{"name": str(n), "tags": ["a", "b"]} for n in range(5_000)],
    ),
    "a long enum": ({"enum": [f"v{n}" for n in range(200)]}, ["v199"] * 2_000),
    "many alternatives": ({"oneOf": KINDS}, [{"kind": f"k{n % 30}", "n": n} for n in range(500)]),
}


@pytest.mark.parametrize("name", HONEST)
def test_a_long_honest_text_stays_within_its_step_limit(name: str) -> None:
    items, value = HONEST[name]
    assert not JsonSchema({"type": "array", "items": items}, WHERE).problem_of_text(
        json.dumps(value)
    )
