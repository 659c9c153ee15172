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
    doc="A column of chats, each a list of {role, content}. If `messages` is given too, it is"
    " appended; `system` goes first. `tool_calls`, `tool_call_id` and `name` are passed to the chat"
    " template; other members are left out. Of content parts only `text` is read, joined by line"
    " breaks.",
)
MESSAGES_FORMAT = Param(
    "messagesFormat",
    ParamType.STRING,
    default="openai",
    choices=("openai", "sharegpt"),
    added=1,
    needs=("messagesFrom",),
    doc="The format of the messages in the column: `openai` is {role, content}; `sharegpt` is"
    " {from, value}, where `from` is `human`, `gpt`, `system` or `tool`.",
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
        doc="A column with the better chat, a list of {role, content}. The messages that both chats"
        " begin with are the prompt. With `messages` or `messagesFrom` the column holds only the"
        " answer.",
    ),
    Param(
        "rejectedFrom",
        ParamType.STRING,
        columns="one",
        format="chat-rows",
        added=1,
        needs=("chosenFrom",),
        doc="A column with the worse chat, in the same format.",
    ),
)
PAIR_ROWS = (
    MESSAGES_FROM,
    replace(MESSAGES_FORMAT, needs=("messagesFrom", "chosenFrom")),
    *ANSWER_ROWS,
)
"""For engines that learn from pairs of answers."""
