"""What ``llm.score`` reads of chats in a column."""

from typing import Any

import pytest

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.llm.sequences import Continuations, RewardText
from flowmesh_worker.engines.tokens import Tokenizing

CHAT = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
WRITTEN = [
    {"role": "user", "content": "{{ q }}"},
    {"role": "assistant", "content": "{{ a }}"},
]
ROW = {"q": "2+2?", "a": "4", "chat": CHAT, "ask": CHAT[:1]}


class Letters:
    """A tokenizer of letters; its chat template writes the role's first letter before a text."""

    chat_template = "there is one"
    eos_token_id = 46

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}

    def apply_chat_template(self, messages: list[dict[str, Any]], **_: Any) -> list[int]:
        return [ord(c) for m in messages for c in m["role"][0] + m["content"]]


def tokens(**params: Any) -> list[int]:
    return RewardText(params).tokens(Tokenizing(Letters(), 64), ROW, 1)


def test_a_reward_is_of_the_same_tokens_by_columns_and_from_a_column() -> None:
    by_columns = tokens(messages=WRITTEN)
    assert tokens(messagesFrom="chat") == by_columns
    assert tokens(messagesFrom="ask", completion="{{ a }}") == by_columns
    with pytest.raises(AttemptError, match="takes one of text, prompt"):
        RewardText({"prompt": "x", "completion": "y", "messagesFrom": "chat"})


def test_a_continuation_follows_the_chat_of_a_column() -> None:
    from_column = Continuations({"messagesFrom": "ask", "completion": "{{ a }}"}).of(ROW, 1)
    by_columns = Continuations({"messages": WRITTEN[:1], "completion": "{{ a }}"}).of(ROW, 1)
    assert from_column == by_columns
