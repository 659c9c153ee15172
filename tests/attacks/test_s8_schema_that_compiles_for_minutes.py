"""Attacker: T2, a tenant whose requests run in an engine that it shares with others.
Action: asks for answers by JSON schemas whose grammars take minutes and gigabytes to compile.
Must not happen: the engine compiles them, or the requests of others wait for them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "flowmesh_worker" / "engines" / "llm"))

from conftest import HERE, program

pytestmark = [pytest.mark.slow, pytest.mark.model]

SLOW = {
    "type": "object",
    "properties": {
        f"p{i}": {"type": "string", "minLength": 1, "maxLength": 5000 + i} for i in range(300)
    },
}
SHORT_AND_SLOW = {"type": "string", "pattern": "^(([a-z]{0,30}){0,30}){0,30}$"}
REFUSED_BY_THE_COMPILER = {"$ref": "#/$defs/none"}
OWNERS = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}


def chat(way: str = "answer", **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 100}
    return {"path": "/v1/chat/completions", "way": way, "body": {**body, "temperature": 0, **more}}


def by_schema(schema: dict[str, Any], way: str = "answer") -> dict[str, Any]:
    given = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    return chat(way, response_format=given)


def by_tool(schema: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "f", "parameters": schema}
    named = {"type": "function", "function": {"name": "f"}}
    return chat(tools=[{"type": "function", "function": function}], tool_choice=named)


GROUPS = {
    "alone": {"batch": True, "calls": []},
    "attack": {
        "batch": True,
        "calls": [
            by_schema(SLOW),
            by_schema(SHORT_AND_SLOW),
            by_schema(SLOW, "stream"),
            by_tool({**SLOW, "required": ["p1"]}),
            by_schema(REFUSED_BY_THE_COMPILER),
            by_schema(OWNERS),
            by_tool(OWNERS),
            by_schema(OWNERS, "stream"),
        ],
    },
}


@pytest.fixture(scope="module")
def answers(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("grammars")
    answer = folder / "answer.json"
    job: dict[str, Any] = {"model": str(tiny_model), "folder": str(folder), "answer": str(answer)}
    job |= {"groups": GROUPS, "tool_parser": "hermes"}
    program(str(HERE / "openai_driver.py"), given=json.dumps(job))
    return dict(json.loads(answer.read_text()))


def test_grammars_that_take_too_long_are_refused(answers: dict[str, Any]) -> None:
    *refused, unsupported = answers["attack"]["answers"][:5]
    refused[2] = [400, json.loads(refused[2][0])]
    for status, body in refused:
        assert status == 400
        assert "the schema is too complex" in body["error"]["message"]
    assert unsupported[0] == 400
    assert "the schema cannot be compiled" in unsupported[1]["error"]["message"]


def test_the_owners_grammars_are_compiled_and_its_batch_is_the_same(
    answers: dict[str, Any],
) -> None:
    schema, tool, stream = answers["attack"]["answers"][5:]
    assert json.loads(schema[1]["choices"][0]["message"]["content"]).keys() == {"n"}
    assert tool[0] == 200, tool
    assert stream[-1] == "data: [DONE]\n\n"
    assert answers["attack"]["batch"] == answers["alone"]["batch"]
