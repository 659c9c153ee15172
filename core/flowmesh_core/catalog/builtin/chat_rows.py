"""Parameters of engines that read chats from a column, in place of templates or before them."""

from dataclasses import replace

from flowmesh_core.catalog.contract import Param, ParamType

MESSAGES_FROM = Param(
    "messagesFrom",
    ParamType.STRING,
    columns="one",
    format="chat-rows",
    added=1,
    beside=("messages",),
    doc="A column of chats, each a list of {role, content}; `messages` beside it are appended, and"
    " `system` goes first. `tool_calls`, `tool_call_id` and `name` are passed to the chat template;"
    " other members are left out. Of content parts only `text` is read, joined by line breaks.",
)
MESSAGES_FORMAT = Param(
    "messagesFormat",
    ParamType.STRING,
    default="openai",
    choices=("openai", "sharegpt"),
    added=1,
    needs=("messagesFrom",),
    doc="The form of the column's messages: `openai` is {role, content}, `sharegpt` is {from,"
    " value} with `human`, `gpt`, `system` and `tool`.",
)
CHAT_ROWS = (MESSAGES_FROM, MESSAGES_FORMAT)
ANSWER_ROWS = (
    Param(
        "chosenFrom",
        ParamType.STRING,
        columns="one",
        format="chat-rows",
        added=1,
        beside=("messages",),
        needs=("rejectedFrom",),
        doc="A column with the better chat, a list of {role, content}; the messages that both chats"
        " begin with are the prompt. With `messages` or `messagesFrom` it holds the answer alone.",
    ),
    Param(
        "rejectedFrom",
        ParamType.STRING,
        columns="one",
        format="chat-rows",
        added=1,
        needs=("chosenFrom",),
        doc="A column with the worse chat, likewise.",
    ),
)
PAIR_ROWS = (
    MESSAGES_FROM,
    replace(MESSAGES_FORMAT, needs=("messagesFrom", "chosenFrom")),
    *ANSWER_ROWS,
)
"""For engines that learn from pairs of answers."""
