"""The part of a completion between <think> and </think>."""

import pytest

from flowmesh_worker.engines.llm.completion_columns import split_reasoning


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "answer"),
    [
        ("<think>\nhm\n</think>\n\n4", False, "hm", "4"),
        ("\n<think>hm</think>4", False, "hm", "4"),
        ("hm\n</think>\n4", True, "hm", "4"),
        ("hm </think> 4", False, "hm", "4"),
        ("<think></think>4", False, "", "4"),
        ("<think>hm, and then", False, "hm, and then", ""),
        ("hm, and then", True, "hm, and then", ""),
        (" 4 apples", False, None, " 4 apples"),
        ("", False, None, ""),
        ("a</think>b</think>c", True, "a", "b</think>c"),
    ],
)
def test_reasoning_is_split_from_the_answer(
    text: str, is_open: bool, reasoning: str | None, answer: str
) -> None:
    assert split_reasoning(text, is_open=is_open) == (reasoning, answer)
