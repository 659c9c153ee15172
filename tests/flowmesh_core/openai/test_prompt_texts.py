"""The texts of a prompt come in the order in which an engine reads them."""

from typing import Any

import orjson
import pytest

from flowmesh_core.openai.prompt_texts import prompt_texts
from flowmesh_core.openai.request import CHAT, COMPLETIONS, EMBEDDINGS, check_request

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def texts(path: str, **body: Any) -> list[str]:
    return list(prompt_texts(check_request(path, {"model": "m", **body})))


def test_a_chat_has_its_tools_then_the_role_and_texts_of_each_message() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "two")]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    said = ["system", "be brief", "user", "one", "two", "assistant", "tool", "3"]
    assert texts(CHAT, messages=messages) == said
    assert texts(CHAT, messages=messages, tools=None) == said
    assert texts(CHAT, messages=messages, tools=[TOOL]) == [orjson.dumps(TOOL).decode(), *said]


@pytest.mark.parametrize("prompt", ["one", ["one"], ["one", "two"]])
def test_of_several_prompts_the_first_is_read(prompt: Any) -> None:
    assert texts(COMPLETIONS, prompt=prompt) == ["one"]


def test_a_request_for_embeddings_has_no_prompt() -> None:
    assert texts(EMBEDDINGS, input="one") == []
