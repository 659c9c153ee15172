"""Messages of a chat, and the reader of chats that a column of the rows holds.

Used by ``prompts`` for engines that read chats, and by training for pairs of them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.errors import bad_input

SYSTEM, ASSISTANT = "system", "assistant"
OPENAI, SHAREGPT = "openai", "sharegpt"
_ROLES = (SYSTEM, "developer", "user", ASSISTANT, "tool", "function")
_PASSED_ON = ("tool_calls", "tool_call_id", "name")
"""Members beside role and content that chat templates read."""
_SPEAKERS = {"human": "user", "gpt": ASSISTANT, SYSTEM: SYSTEM, "tool": "tool"}
_FORM = "{role, content}"
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Message:
    """A message.

    Attributes:
        role: who says it.
        content: the text; None only beside ``tool_calls``.
        more: other members that the chat template reads.
    """

    role: str
    content: str | None
    more: Mapping[str, Any] = field(default_factory=dict)

    def canonical(self) -> list[Any]:
        """Returns the value from which a sample's seed is derived."""
        return (
            [self.role, self.content, dict(self.more)] if self.more else [self.role, self.content]
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the message in the form of OpenAI's API, as the row has it."""
        return {"role": self.role, "content": self.content, **self.more}

    def for_template(self) -> dict[str, Any]:
        """Returns the message in the form of chat templates: arguments of calls are objects."""
        calls = self.more.get("tool_calls")
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            return self.as_dict()
        return {**self.as_dict(), "tool_calls": [_with_arguments(c) for c in calls]}


class ChatColumn:
    """A column with a chat in each row."""

    def __init__(self, column: str, form: str = OPENAI, parameter: str = "messagesFrom") -> None:
        """Keeps the arguments.

        Args:
            column: its name.
            form: ``openai`` or ``sharegpt``.
            parameter: that names the column, for errors.
        """
        self.column = column
        self._form = form
        self._parameter = parameter

    def read(self, row: Mapping[str, Any], number: int) -> tuple[Message, ...]:
        """Returns the messages of one row; at least one.

        Args:
            row: values by column.
            number: the row's number in its chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; names the row and the message.
        """
        if self.column not in row:
            raise bad_input(
                f"with.{self._parameter} names {self.column!r}, and the rows have no such column",
                f"the columns are {', '.join(sorted(row)) or '(none)'}",
            )
        value = row[self.column]
        where = f"row {number} of this chunk"
        if isinstance(value, str):
            raise bad_input(
                f"column {self.column!r} holds strings; {self._parameter} takes a list of {_FORM}",
                "read JSON in a step before, or write a prompt with the text",
            )
        if not isinstance(value, Sequence) or isinstance(value, bytes) or not value:
            raise bad_input(
                f"{where} has no messages in {self.column!r}",
                f"{self._parameter} takes a list of {_FORM}; leave other rows out",
            )
        return tuple(self._messages(value, where))

    def _messages(self, value: Sequence[Any], where: str) -> Iterator[Message]:
        for place, message in enumerate(value, 1):
            if not isinstance(message, Mapping):
                raise bad_input(
                    f"{where}: message {place} is not an object", f"a message is {_FORM}"
                )
            given = {name: v for name, v in message.items() if v is not None}
            at = f"{where}: message {place}"
            yield self._sharegpt(given, at) if self._form == SHAREGPT else _openai(given, where, at)

    def _sharegpt(self, given: Mapping[str, Any], at: str) -> Message:
        speaker, text = given.get("from"), given.get("value")
        if speaker is None and "role" in given:
            raise bad_input(f"{at} looks like OpenAI's ({_FORM})", "leave messagesFormat out")
        if not isinstance(speaker, str) or speaker not in _SPEAKERS:
            shown = "no speaker" if speaker is None else f"the speaker {str(speaker)[:_SHOWN]!r}"
            raise bad_input(f"{at} has {shown}", f"`from` is one of {', '.join(_SPEAKERS)}")
        if not isinstance(text, str):
            raise bad_input(f"{at} has no text", "`value` is a text")
        return Message(_SPEAKERS[speaker], text)


def _openai(given: Mapping[str, Any], where: str, at: str) -> Message:
    role = given.get("role")
    if role is None and "from" in given and "value" in given:
        raise bad_input(
            f"{where} looks like ShareGPT ({{from, value}})", "write messagesFormat: sharegpt"
        )
    if not isinstance(role, str) or not role:
        raise bad_input(f"{at} has no role", f"a message is {_FORM}")
    if role not in _ROLES:
        raise bad_input(
            f"{at} has the role {role[:_SHOWN]!r}", f"a role is one of {', '.join(_ROLES)}"
        )
    more = {name: given[name] for name in _PASSED_ON if name in given}
    if not more.get("tool_calls"):
        more.pop("tool_calls", None)
    content = given.get("content")
    if content is None and "tool_calls" not in more:
        raise bad_input(f"{at} has no content", f"a message is {_FORM}")
    return Message(role, None if content is None else _text(content, where, at), more)


def _text(content: Any, where: str, at: str) -> str:
    """Returns a content's text; of parts the texts of all, each on a line of its own."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise bad_input(f"{at} has a content that is not a text", f"a message is {_FORM}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind not in ("text", None) or not isinstance(text, str):
            raise bad_input(
                f"{where}: content part {str(kind)[:_SHOWN]}; this engine reads text",
                "leave such rows out, or write what they show as a text",
            )
        texts.append(text)
    return "\n".join(texts)


def _with_arguments(call: Any) -> Any:
    """Returns a call of a tool with its arguments read, which OpenAI's API writes as a text."""
    function = call.get("function") if isinstance(call, Mapping) else None
    written = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(written, str):
        return call
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def own_system(number: int) -> AttemptError:
    """Returns the error for a row that has a system message beside the step's."""
    return bad_input(
        f"row {number} of this chunk has a system message of its own", "leave with.system out"
    )
