"""Parameters, templates and columns that are wrong: where, what was expected, the nearest name."""

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS, SCORE, SQL


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        (
            {"temperature": "hot"},
            ".temperature",
            "expected a number, got the string 'hot'",
        ),
        (
            {"temperature": "0.5"},
            ".temperature",
            "expected a number, got the string '0.5'; write it without quotes",
        ),
        ({"maxTokens": "${params.x}"}, ".maxTokens", "no 'x' in params"),
        ({"temperature": -1}, ".temperature", "-1.0 is less than the least allowed 0"),
        (
            {"dtype": "float31"},
            ".dtype",
            "'float31' is not allowed; use one of 'auto', 'float32', 'bfloat16', 'float16'",
        ),
        (
            {"dtyp": "float32"},
            ".dtyp",
            "llm.generate has no parameter 'dtyp'; did you mean 'dtype'?",
        ),
        ({"tensorParallel": 2}, ".tensorParallel", "tensorParallel is written under resources"),
        (
            {"messages": [{"role": "user", "content": "x"}]},
            "",
            "llm.generate needs exactly one of prompt, messages (or messagesFrom); got prompt"
            " and messages",
        ),
        (
            {"prompt": None},
            "",
            "llm.generate needs exactly one of prompt, messages (or messagesFrom); got none",
        ),
        (
            {"prompt": "{{ question"},
            ".prompt",
            "not a template: unexpected end of template, expected 'end of print statement'."
            " (line 1 of it)",
        ),
        (
            {"prompt": "{{ qestion }}"},
            ".prompt",
            "the template names 'qestion', and the rows have no such column; did you mean"
            " 'question'?",
        ),
        (
            {"prompt": "{{ question | shout }}"},
            ".prompt",
            "not a template: No filter named 'shout'. (line 1 of it)",
        ),
        (
            {"jsonSchema": {"type": "objekt"}},
            ".jsonSchema",
            "no type 'objekt'; did you mean 'object'?",
        ),
        (
            {"jsonSchema": {"properties": {"a": {"pattern": "("}}}},
            ".jsonSchema",
            "in properties.a: pattern is not a regular expression of RE2: missing ): (",
        ),
        (
            {"jsonSchema": {"patternProperties": {"^(?!x)": {}}}},
            ".jsonSchema",
            "patternProperties is not a regular expression of RE2: invalid perl operator: (?!"
            " (RE2 has no look-ahead or look-behind)",
        ),
        (
            {"jsonSchema": {"pattern": 5}},
            ".jsonSchema",
            "pattern must be a regular expression",
        ),
        (
            {"jsonSchema": {"items": {"$ref": "https://example.com/schema.json"}}},
            ".jsonSchema",
            "in items: $ref must name a place in the schema itself, such as #/$defs/name",
        ),
        (
            {"jsonSchema": {"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}},
            ".jsonSchema",
            "in items: $schema is allowed only at the top level",
        ),
        (
            {"jsonSchema": {"enum": ["x" * 70_000]}},
            ".jsonSchema",
            "about 70015 bytes, of at most 65536",
        ),
        (
            {"prompt": None, "messages": []},
            ".messages",
            "expected at least one message {role: user, content: text}",
        ),
        (
            {"prompt": None, "messages": [{"role": "usr", "content": "x"}]},
            ".messages[0].role",
            "no role 'usr'; did you mean 'user'?",
        ),
        (
            {"prompt": None, "messages": ["x"]},
            ".messages[0]",
            "expected a message {role: user, content: text}",
        ),
        (
            {"prompt": None, "messages": [{"role": "user", "content": "{{ tagret }}"}]},
            ".messages[0].content",
            "the template names 'tagret', and the rows have no such column; did you mean 'target'?",
        ),
    ],
)
def test_an_invalid_parameter_is_reported_with_location_and_reason(
    problems, given, path, message
) -> None:
    found = problems({**GENERATE, "with": {**GENERATE["with"], **given}}, inputs=INPUTS)
    assert found == {f"spec.steps[0].with{path}": message}


def test_templates_may_use_the_environments_functions_and_the_whole_row(problems) -> None:
    prompt = "{% for k in row %}{{ k }}{% endfor %}{{ range(3) | list }}{% set x = 1 %}{{ x }}"
    assert problems({**GENERATE, "with": {"prompt": prompt}}, inputs=INPUTS) == {}


def test_columns_are_followed_from_step_to_step(problems) -> None:
    rows = {"rows": "a.rows"}
    assert problems(GENERATE, {**SCORE, "inputs": rows}, inputs=INPUTS) == {}
    wrong = {**SCORE, "inputs": rows, "with": {"prediction": "answer", "target": "target"}}
    found = problems(GENERATE, wrong, inputs=INPUTS)
    assert found == {
        "spec.steps[1].with.prediction": "no column 'answer' in the rows"
        "; there is completion, finish_reason, question, sample, target"
    }
    renamed = {**GENERATE, "with": {"prompt": "x", "output": "answer"}}
    assert problems(renamed, wrong, inputs=INPUTS) == {}


def test_columns_of_an_uploaded_file_are_known_where_the_caller_has_read_it(problems) -> None:
    inputs = {**INPUTS, "questions": {"dataset": "./q.jsonl"}}
    assert problems(GENERATE, inputs=inputs) == {}
    assert problems(GENERATE, inputs=inputs, columns={"questions": ["question"]}) == {}
    found = problems(GENERATE, inputs=inputs, columns={"questions": ["text"]})
    assert list(found) == ["spec.steps[0].with.prompt"]


def test_columns_behind_a_query_of_unknown_tables_are_not_known_and_not_guessed(problems) -> None:
    code = {"uses": "code.python", "with": {"code": "def main():\n  return []"}}
    sql = {**SQL, "inputs": {"rows": "a.rows"}}
    assert problems(code, sql, {**SCORE, "inputs": {"rows": "b.rows"}}, inputs=INPUTS) == {}
