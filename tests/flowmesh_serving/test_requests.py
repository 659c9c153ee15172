"""Requests from OpenAI's client through router and hub to an engine host, without a model."""

from pathlib import Path

import openai
import pytest
from tests.flowmesh_serving.stack import MODEL, echo_stack


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_chat_is_answered_with_salt_and_priority_set_by_the_hub(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        answer = await client.chat.completions.create(model=MODEL, messages=says("one two"))
        assert answer.choices[0].message.content == "one two"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2
        assert answer.seen["salt"] == "salt-a"
        assert answer.seen["priority"] > 1_000_000


async def test_a_stream_arrives_piece_by_piece(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=says("one two three"), stream=True
        )
        words = [chunk.choices[0].delta.content async for chunk in stream]
    assert words == ["one", "two", "three", None]


async def test_a_wrong_parameter_is_refused_by_name(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'priority'"):
            await client.chat.completions.create(
                model=MODEL, messages=says("one"), extra_body={"priority": 1}
            )
