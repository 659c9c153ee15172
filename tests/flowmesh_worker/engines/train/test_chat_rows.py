"""Training on chats from a column: the same examples as from templates, pairs, refusals."""

from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.train.preferences import Preferences
from flowmesh_worker.engines.train.sft import SftReader
from flowmesh_worker.engines.train.tokens import TrainingTokenizer

ASK = {"role": "user", "content": "2+2?"}
GOOD, BAD = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}
ROW = {"q": "2+2?", "a": "4", "b": "5", "chat": [ASK, GOOD], "good": [ASK, GOOD], "bad": [ASK, BAD]}


class Letters:
    """A tokenizer of letters; its chat template writes the role's first letter before a text."""

    chat_template = "there is one"
    eos_token = "."

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, add_generation_prompt: bool = False, **_: Any
    ) -> dict[str, list[int]]:
        text = "".join(m["role"][0] + m["content"] for m in messages)
        return self(text + ("a" if add_generation_prompt else ""))


def pair(row: dict[str, Any], **params: Any) -> Any:
    return Preferences(params, TrainingTokenizer(Letters())).pair(row, 3)


def refused(row: dict[str, Any], **params: Any) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        pair(row, **params)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    return caught.value


def learned(**params: Any) -> Any:
    given = {"assistant_only_loss": False, "completion_only_loss": None, **params}
    return SftReader(given, TrainingTokenizer(Letters()), 64).read(ROW, 1)


def test_a_chat_from_a_column_is_learned_as_one_from_templates() -> None:
    written = [
        {"role": "user", "content": "{{ q }}"},
        {"role": "assistant", "content": "{{ a }}"},
    ]
    assert learned(messagesFrom="chat") == learned(messages=written)


def test_messages_that_two_chats_begin_with_are_the_prompt() -> None:
    written = {"messages": [{"role": "user", "content": "{{ q }}"}]}
    by_templates = pair(ROW, **written, chosen="{{ a }}", rejected="{{ b }}")
    assert pair(ROW, chosenFrom="good", rejectedFrom="bad") == by_templates
    answers = {**ROW, "good": [GOOD], "bad": [BAD]}
    assert pair(answers, **written, chosenFrom="good", rejectedFrom="bad") == by_templates
    asked = {**answers, "ask": [ASK]}
    assert pair(asked, messagesFrom="ask", chosenFrom="good", rejectedFrom="bad") == by_templates
    prompt, chosen, rejected = by_templates
    assert ["".join(map(chr, ids)) for ids in (prompt, chosen, rejected)] == [
        "u2+2?a",
        "u2+2?a4",
        "u2+2?a5",
    ]


def test_chats_of_several_turns_differ_only_at_their_end() -> None:
    begin = [ASK, GOOD, {"role": "user", "content": "sure?"}]
    prompt, chosen, _ = pair(
        {"good": [*begin, GOOD], "bad": [*begin, BAD]}, chosenFrom="good", rejectedFrom="bad"
    )
    assert "".join(map(chr, prompt)) == "u2+2?a4usure?a"
    assert "".join(map(chr, chosen[len(prompt) :])) == "4"


def test_equal_chats_teach_nothing() -> None:
    assert (
        pair({"good": [ASK, GOOD], "bad": [ASK, GOOD]}, chosenFrom="good", rejectedFrom="bad")
        is None
    )


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ([ASK, GOOD], [ASK], "row 3: what 'bad' has after the prompt is not an answer"),
        ([ASK, GOOD], [ASK, {"role": "user", "content": "x"}], "what 'bad' has after the prompt"),
        ([GOOD], [BAD], "row 3: the two chats begin with no message in common"),
        ([ASK, GOOD], "x", "column 'bad' holds strings; rejectedFrom takes a list"),
    ],
)
def test_chats_that_are_no_pair_are_refused(good: Any, bad: Any, said: str) -> None:
    error = refused({"good": good, "bad": bad}, chosenFrom="good", rejectedFrom="bad")
    assert said in error.failure.message
    assert error.failure.remedy


def test_a_chat_with_its_prompt_again_is_not_an_answer_to_messages() -> None:
    params = {"messages": [ASK], "chosenFrom": "good", "rejectedFrom": "bad"}
    error = refused(ROW, **params)
    assert "the columns hold the answers alone" in error.failure.remedy
