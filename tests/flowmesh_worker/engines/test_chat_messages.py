"""Chats from a column: layouts of public data sets, seeds, and refusals that name the row."""

from typing import Any

import pytest
from tests.flowmesh_worker.engines.chat_layouts import LAYOUTS, Layout

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engines.chat_messages import Message
from flowmesh_worker.engines.prompts import Prompt

CHAT = [
    {"role": "system", "content": "Be brief"},
    {"role": "user", "content": "why?"},
    {"role": "assistant", "content": "so"},
    {"role": "user", "content": "and how?"},
]


def refused(value: Any, **params: Any) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        Prompt({"messagesFrom": "chat", **params}).render({"chat": value}, 3)
    assert caught.value.failure.kind is FailureKind.BAD_INPUT
    return caught.value


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_a_layout_of_public_data_sets_becomes_messages(layout: Layout) -> None:
    prompt = Prompt({"messagesFrom": "chat", "messagesFormat": layout.form})
    assert prompt.render({"chat": layout.value}, 1).messages == layout.messages


def test_the_same_chat_by_columns_and_from_a_column_is_one_request() -> None:
    written = [
        {"role": "user", "content": "{{ q }}"},
        {"role": "assistant", "content": "{{ a }}"},
        {"role": "user", "content": "{{ r }}"},
    ]
    by_columns = Prompt({"messages": written, "system": "Be {{ s }}"})
    row = {"s": "brief", "q": "why?", "a": "so", "r": "and how?", "chat": CHAT}
    from_column = Prompt({"messagesFrom": "chat"})
    mixed = Prompt({"messagesFrom": "begin", "messages": written[1:], "system": "Be {{ s }}"})
    rendered = [
        by_columns.render(row, 1),
        from_column.render(row, 1),
        mixed.render({**row, "begin": CHAT[1:2]}, 1),
    ]
    assert rendered[0].messages == rendered[1].messages == rendered[2].messages
    assert len({r.canonical() for r in rendered}) == 1
    assert rendered[0].canonical() == canonical_bytes([[m["role"], m["content"]] for m in CHAT])


def test_further_members_change_the_seed_and_plain_messages_keep_theirs() -> None:
    plain, named = Message("user", "hi"), Message("user", "hi", {"name": "ann"})
    assert plain.canonical() == ["user", "hi"]
    assert named.canonical() == ["user", "hi", {"name": "ann"}]


def test_arguments_that_openai_writes_as_a_text_are_an_object_for_chat_templates() -> None:
    def calling(arguments: Any) -> Message:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return Message("assistant", None, {"tool_calls": [call]})

    written = calling('{"a": 1}')
    assert written.for_template() == calling({"a": 1}).as_dict()
    assert written.as_dict()["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert calling("not JSON").for_template() == calling("not JSON").as_dict()
    assert Message("user", "hi").for_template() == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("value", "said", "remedy"),
    [
        ("[]", "column 'chat' holds strings; messagesFrom takes a list of {role", "read JSON"),
        (None, "row 3 of this chunk has no messages in 'chat'", "leave other rows out"),
        ([], "row 3 of this chunk has no messages in 'chat'", "a list of {role, content}"),
        (["hi"], "row 3 of this chunk: message 1 is not an object", "{role, content}"),
        ([CHAT[0], {"content": "x"}], "row 3 of this chunk: message 2 has no role", "{role"),
        ([{"role": "usr", "content": "x"}], "message 1 has the role 'usr'", "one of system"),
        ([{"role": "user"}], "row 3 of this chunk: message 1 has no content", "{role, content}"),
        ([{"role": "user", "content": 5}], "message 1 has a content that is not a text", "{role"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "row 3 of this chunk: content part image_url; this engine reads text",
            "write what they show",
        ),
        (
            [{"from": "human", "value": "x"}],
            "row 3 of this chunk looks like ShareGPT ({from, value})",
            "write messagesFormat: sharegpt",
        ),
    ],
)
def test_a_chat_that_cannot_be_read_is_refused_with_row_and_message(
    value: Any, said: str, remedy: str
) -> None:
    error = refused(value)
    assert said in error.failure.message
    assert remedy in error.failure.remedy


@pytest.mark.parametrize(
    ("value", "said", "remedy"),
    [
        ([{"role": "user", "content": "x"}], "looks like OpenAI's", "leave messagesFormat out"),
        ([{"from": "bot", "value": "x"}], "message 1 has the speaker 'bot'", "human, gpt"),
        ([{"value": "x"}], "message 1 has no speaker", "human, gpt"),
        ([{"from": "gpt", "value": 5}], "message 1 has no text", "a text"),
    ],
)
def test_a_chat_of_another_form_than_sharegpt_is_refused(
    value: Any, said: str, remedy: str
) -> None:
    error = refused(value, messagesFormat="sharegpt")
    assert said in error.failure.message
    assert remedy in error.failure.remedy


def test_a_system_message_of_the_step_goes_first_and_never_beside_the_rows_own() -> None:
    error = refused(CHAT, system="Be kind")
    assert error.failure.message == "row 3 of this chunk has a system message of its own"
    assert "leave with.system out" in error.failure.remedy
    rendered = Prompt({"messagesFrom": "chat", "system": "Be kind"}).render({"chat": CHAT[1:]}, 1)
    assert rendered.messages[0] == Message("system", "Be kind")
    assert rendered.begins_at == 1


def test_a_missing_column_is_named_with_those_that_exist() -> None:
    with pytest.raises(AttemptError, match="the columns are q") as caught:
        Prompt({"messagesFrom": "chat"}).render({"q": "x"}, 1)
    assert "names 'chat', and the rows have no such column" in caught.value.failure.message
