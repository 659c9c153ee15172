"""Completions that are parsed as calls, as answers, and as neither."""

import json

import pytest

from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engines.agent.calls import (
    MAX_CALLS,
    ParsedCompletion,
    ToolCall,
    parse_constrained,
    parse_free,
)

ADD = ToolCall("calculator", {"expression": "1+1"})
JSON = '{"name": "calculator", "arguments": {"expression": "1+1"}}'


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (f"<tool_call>\n{JSON}\n</tool_call>", ParsedCompletion(calls=(ADD,))),
        (f"I look. <tool_call>{JSON}</tool_call>", ParsedCompletion("I look.", (ADD,))),
        (f"<tool_call>{JSON}", ParsedCompletion(calls=(ADD,))),
        (f"<tool_call>{JSON}</tool_call>" * 2, ParsedCompletion(calls=(ADD, ADD))),
        (JSON, ParsedCompletion(calls=(ADD,))),
        (f"```json\n{JSON}\n```", ParsedCompletion(calls=(ADD,))),
        (f"[{JSON}]", ParsedCompletion(calls=(ADD,))),
        (JSON.replace("arguments", "parameters"), ParsedCompletion(calls=(ADD,))),
        (
            '{"name": "f", "arguments": "{\\"a\\": 1}"}',
            ParsedCompletion(calls=(ToolCall("f", {"a": 1}),)),
        ),
        ("It is 2.", ParsedCompletion(answer="It is 2.")),
        ('{"total": 2}', ParsedCompletion(answer='{"total": 2}')),
        ("[]", ParsedCompletion(answer="[]")),
        ("", ParsedCompletion(answer="")),
    ],
)
def test_calls_are_found_in_the_forms_that_models_write(
    said: str, expected: ParsedCompletion
) -> None:
    assert parse_free(said) == expected


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("calculator(1+1)", "no JSON object: calculator(1+1)"),
        ('{"name": "f"}', "a call is"),
        ('{"name": 3, "arguments": {}}', "a call is"),
        ('{"name": "f", "arguments": [1]}', "arguments of the call are no JSON object"),
        ('{"name": "f", "arguments": {"a": ' + "[" * 40 + "]" * 40 + "}}", "nested too deeply"),
        ('{"name": "f", "arguments": {"a": 1}', "no JSON object"),
    ],
)
def test_an_unreadable_call_is_reported(block: str, words: str) -> None:
    reading = parse_free(f"<tool_call>{block}</tool_call>")
    assert words in reading.problem
    assert (reading.answer, reading.calls) == (None, ())


def test_calls_of_one_turn_are_bounded() -> None:
    blocks = [f"<tool_call>{JSON}</tool_call>" * n for n in (MAX_CALLS, MAX_CALLS + 1)]
    assert len(parse_free(blocks[0]).calls) == MAX_CALLS
    assert "9 calls at once" in parse_free(blocks[1]).problem


@pytest.mark.parametrize(
    "text",
    ["1e400", "NaN", "-Infinity", "9223372036854775808", "-1" + "0" * 30, '"\\ud800"',
     '{"\\udfff": 1}', '"two\nlines\x00"'],
)  # fmt: skip
def test_arguments_have_a_canonical_form(text: str) -> None:
    [call] = parse_free(f'{{"name": "f", "arguments": {{"x": {text}}}}}').calls
    canonical_bytes(dict(call.arguments))


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000])
def test_json_that_python_cannot_parse_is_reported(text: str) -> None:
    said = f'<tool_call>{{"name": "f", "arguments": {{"x": {text}}}}}</tool_call>'
    assert "no JSON object" in parse_free(said).problem


def test_line_breaks_inside_strings_are_accepted() -> None:
    call = '{"name": "sql", "arguments": {"query": "select 1\n  as one"}}'
    assert parse_constrained(call).calls[0].arguments == {"query": "select 1\n  as one"}
    assert parse_constrained('{"answer": "two\nlines"}').answer == "two\nlines"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (JSON, ParsedCompletion(calls=(ADD,))),
        ('{"answer": "two"}', ParsedCompletion(answer="two")),
        ('{"answer": "tw', ParsedCompletion(answer="tw")),
        (' {"answer": "say \\"two\\" or \\u00', ParsedCompletion(answer='say "two" or ')),
        ('{"answer": "a\\', ParsedCompletion(answer="a")),
    ],
)
def test_constrained_completions_are_calls_or_answers_even_if_truncated(
    said: str, expected: ParsedCompletion
) -> None:
    assert parse_constrained(said) == expected


def test_a_truncated_constrained_call_is_reported() -> None:
    assert "no JSON object" in parse_constrained(JSON[:-5]).problem
    assert json.loads(JSON)["name"] == "calculator"
