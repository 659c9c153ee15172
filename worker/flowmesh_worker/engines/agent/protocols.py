"""Ways to describe tools to a model and to parse its calls, behind one interface.

``TemplateCalls`` uses the model's chat template, ``PromptedCalls`` describes the tools in the
system message, and ``ConstrainedCalls`` constrains each turn to the JSON of a call or an answer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flowmesh_worker.engines.agent.calls import (
    ParsedCompletion,
    ToolCall,
    parse_constrained,
    parse_free,
)

Message = dict[str, Any]
Description = Mapping[str, Any]
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
_LISTED = "You may call tools. They are described within <tools></tools>:\n<tools>\n{}\n</tools>\n"
_WRITTEN = (
    "To call one, write its name and arguments as JSON within <tool_call></tool_call>:\n"
    '<tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call>\n'
    "Results come within <tool_response></tool_response>. When you know the answer, write it"
    " without a call."
)
_CONSTRAINED = (
    'To call one, reply with {"name": NAME, "arguments": {...}}. Results come within'
    ' <tool_response></tool_response>. When you know the answer, reply with {"answer": "..."}.'
)


class CallProtocol(Protocol):
    """How tools are described to a model and its calls are parsed."""

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the chat with the instructions for tools added."""
        ...

    @property
    def described(self) -> Sequence[Description]:
        """The descriptions to pass to the chat template."""
        ...

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether completions are read with their special tokens."""
        ...

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any] | None:
        """Returns the JSON schema that constrains the next completion, or None."""
        ...

    def read(self, text: str) -> ParsedCompletion:
        """Parses a completion."""
        ...

    def assistant_message(self, text: str, reading: ParsedCompletion, number: int) -> Message:
        """Returns a completion as a message of the chat."""
        ...

    def results(
        self, calls: Sequence[ToolCall], texts: Sequence[str], number: int
    ) -> list[Message]:
        """Returns the results of a turn's calls as messages; ``number`` is the first call's."""
        ...


def tool_response(text: str) -> Message:
    """Returns the message that reports a result or a problem to the model as plain text."""
    return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}


class TemplateCalls:
    """Tools and calls in the form of the model's chat template."""

    keeps_special_tokens = False

    def __init__(self, tools: Sequence[Description]) -> None:
        self.described = tools

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """See :class:`CallProtocol`."""
        return list(messages)

    def schema(self, *, first: bool, last: bool) -> None:
        """See :class:`CallProtocol`."""

    def read(self, text: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return parse_free(text)

    def assistant_message(self, text: str, reading: ParsedCompletion, number: int) -> Message:
        """See :class:`CallProtocol`."""
        if not reading.calls:
            return {"role": "assistant", "content": text}
        calls = [
            {
                "id": _call_id(number + i),
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for i, call in enumerate(reading.calls)
        ]
        return {"role": "assistant", "content": reading.text, "tool_calls": calls}

    def results(
        self, calls: Sequence[ToolCall], texts: Sequence[str], number: int
    ) -> list[Message]:
        """See :class:`CallProtocol`."""
        return [
            {
                "role": "tool",
                "tool_call_id": _call_id(number + i),
                "name": call.name,
                "content": text,
            }
            for i, (call, text) in enumerate(zip(calls, texts, strict=True))
        ]


class PromptedCalls:
    """Tools described in the system message; calls and results are plain text of the chat."""

    described: Sequence[Description] = ()
    keeps_special_tokens = False
    _how = _WRITTEN

    def __init__(self, tools: Sequence[Description]) -> None:
        lines = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        self._instructions = _LISTED.format(lines) + self._how

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """See :class:`CallProtocol`."""
        first, *rest = messages
        if first["role"] == "system":
            content = f"{first['content']}\n\n{self._instructions}"
            return [{"role": "system", "content": content}, *rest]
        return [{"role": "system", "content": self._instructions}, *messages]

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any] | None:
        """See :class:`CallProtocol`."""
        return None

    def read(self, text: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return parse_free(text)

    def assistant_message(self, text: str, reading: ParsedCompletion, number: int) -> Message:
        """See :class:`CallProtocol`."""
        return {"role": "assistant", "content": text}

    def results(
        self, calls: Sequence[ToolCall], texts: Sequence[str], number: int
    ) -> list[Message]:
        """See :class:`CallProtocol`. One message, for templates in which roles must alternate."""
        return [{"role": "user", "content": "\n".join(tool_response(t)["content"] for t in texts)}]


class ConstrainedCalls(PromptedCalls):
    """Each completion is constrained to one JSON object: a call or an answer, first a call."""

    _how = _CONSTRAINED

    def __init__(self, tools: Sequence[Description]) -> None:
        super().__init__(tools)
        self._calls = [_call_schema(t["function"]) for t in tools]

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any]:
        """See :class:`CallProtocol`."""
        if last:
            return ANSWER_SCHEMA
        return {"anyOf": self._calls if first else [*self._calls, ANSWER_SCHEMA]}

    def read(self, text: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return parse_constrained(text)


def _call_schema(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [function["name"]]},
            "arguments": function["parameters"],
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _call_id(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as some chat templates require
