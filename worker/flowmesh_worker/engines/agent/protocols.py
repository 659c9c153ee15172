"""Ways to describe tools to a model and to read its calls, behind one interface.

``TemplateCalls`` uses the model's chat template, ``PromptedCalls`` describes the tools in the
system message, and ``ConstrainedCalls`` constrains each turn to the JSON of a call or an answer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flowmesh_worker.engines.agent.calls import ParsedCompletion, ToolCall, read_free, read_held

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
_HELD = (
    'To call one, reply with {"name": NAME, "arguments": {...}}. Results come within'
    ' <tool_response></tool_response>. When you know the answer, reply with {"answer": "..."}.'
)


class CallProtocol(Protocol):
    """How calls are asked for and read."""

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """The chat with what the model must know of tools."""
        ...

    @property
    def described(self) -> Sequence[Description]:
        """The descriptions that the chat template takes."""
        ...

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any] | None:
        """What the next completion is held to."""
        ...

    def read(self, said: str) -> ParsedCompletion:
        """What a completion is."""
        ...

    def said(self, text: str, reading: ParsedCompletion, number: int) -> Message:
        """A completion as a message of the chat."""
        ...

    def results(
        self, calls: Sequence[ToolCall], texts: Sequence[str], number: int
    ) -> list[Message]:
        """The results of a turn's calls as messages; ``number`` is the first call's."""
        ...


def told(text: str) -> Message:
    """What the model is told of a call that could not be read."""
    return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}


class TemplateCalls:
    """The chat template knows tools."""

    def __init__(self, tools: Sequence[Description]) -> None:
        """Takes the descriptions."""
        self.described = tools

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """See :class:`CallProtocol`."""
        return list(messages)

    def schema(self, *, first: bool, last: bool) -> None:
        """See :class:`CallProtocol`."""

    def read(self, said: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return read_free(said)

    def said(self, text: str, reading: ParsedCompletion, number: int) -> Message:
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
    """The system message says how to call; calls and results are text of the chat."""

    described: Sequence[Description] = ()
    _how = _WRITTEN

    def __init__(self, tools: Sequence[Description]) -> None:
        """Takes the descriptions."""
        lines = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        self._told = _LISTED.format(lines) + self._how

    def prepare(self, messages: Sequence[Message]) -> list[Message]:
        """See :class:`CallProtocol`."""
        first, *rest = messages
        if first["role"] == "system":
            return [{"role": "system", "content": f"{first['content']}\n\n{self._told}"}, *rest]
        return [{"role": "system", "content": self._told}, *messages]

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any] | None:
        """See :class:`CallProtocol`."""
        return None

    def read(self, said: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return read_free(said)

    def said(self, text: str, reading: ParsedCompletion, number: int) -> Message:
        """See :class:`CallProtocol`."""
        return {"role": "assistant", "content": text}

    def results(
        self, calls: Sequence[ToolCall], texts: Sequence[str], number: int
    ) -> list[Message]:
        """See :class:`CallProtocol`. One message, for templates in which roles must alternate."""
        return [{"role": "user", "content": "\n".join(told(t)["content"] for t in texts)}]


class ConstrainedCalls(PromptedCalls):
    """Each completion is one JSON object: a call, or an answer; the first is a call."""

    _how = _HELD

    def __init__(self, tools: Sequence[Description]) -> None:
        """Takes the descriptions."""
        super().__init__(tools)
        self._calls = [_call_schema(t["function"]) for t in tools]

    def schema(self, *, first: bool, last: bool) -> Mapping[str, Any]:
        """See :class:`CallProtocol`."""
        if last:
            return ANSWER_SCHEMA
        return {"anyOf": self._calls if first else [*self._calls, ANSWER_SCHEMA]}

    def read(self, said: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        return read_held(said)


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
    return f"call{number:05d}"  # nine letters and digits, which some templates insist on
