"""The layouts in which public data sets keep chats, each with rows of our own.

Each is a column's value as a data set's file has it, the parameters that read it, and the messages
that an engine must see.
"""

from typing import Any, NamedTuple

from flowmesh_worker.engines.chat_messages import Message

_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "add", "arguments": {"a": 1, "b": 2}},
}
U, A, S, T = "user", "assistant", "system", "tool"


class Layout(NamedTuple):
    """One layout."""

    name: str
    value: list[dict[str, Any]]
    messages: tuple[Message, ...]
    form: str = "openai"


LAYOUTS = (
    Layout(
        "role and content",
        [{"role": U, "content": "Hi"}, {"role": A, "content": "Hello"}],
        (Message(U, "Hi"), Message(A, "Hello")),
    ),
    Layout(
        "with a system message",
        [{"role": S, "content": "Be brief"}, {"role": U, "content": "Hi"}],
        (Message(S, "Be brief"), Message(U, "Hi")),
    ),
    Layout(
        "keys that Parquet fills with nulls",
        [
            {"role": U, "content": "Hi", "name": None, "tool_calls": None},
            {"role": A, "content": "Hello", "name": None, "tool_calls": []},
        ],
        (Message(U, "Hi"), Message(A, "Hello")),
    ),
    Layout(
        "keys of the data set's own",
        [{"role": U, "content": "Hi", "id": 7, "language": "en", "toxic": False}],
        (Message(U, "Hi"),),
    ),
    Layout(
        "calls of tools",
        [
            {"role": U, "content": "1+2?"},
            {"role": A, "content": None, "tool_calls": [_CALL]},
            {"role": T, "tool_call_id": "call_1", "name": "add", "content": "3"},
        ],
        (
            Message(U, "1+2?"),
            Message(A, None, {"tool_calls": [_CALL]}),
            Message(T, "3", {"tool_call_id": "call_1", "name": "add"}),
        ),
    ),
    Layout(
        "parts of text",
        [{"role": U, "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "you"}]}],
        (Message(U, "Hi\nyou"),),
    ),
    Layout(
        "names of speakers",
        [{"role": U, "content": "Hi", "name": "ann"}],
        (Message(U, "Hi", {"name": "ann"}),),
    ),
    Layout(
        "a developer's message",
        [{"role": "developer", "content": "Be brief"}, {"role": U, "content": "Hi"}],
        (Message("developer", "Be brief"), Message(U, "Hi")),
    ),
    Layout(
        "ShareGPT",
        [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}],
        (Message(U, "Hi"), Message(A, "Hello")),
        "sharegpt",
    ),
    Layout(
        "ShareGPT with a system message and further keys",
        [
            {"from": "system", "value": "Be brief", "weight": None},
            {"from": "human", "value": "Hi", "weight": 0.5},
        ],
        (Message(S, "Be brief"), Message(U, "Hi")),
        "sharegpt",
    ),
)
