"""The conversation about one row, as a state machine: completions in, tool calls out.

Driven by ``engine``. It does not use a model and runs no tool.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engines.agent.calls import ToolCall
from flowmesh_worker.engines.agent.protocols import CallProtocol, Message, tool_response

ANSWERED, LENGTH, MAX_TURNS, CONTEXT, BAD_CALL = (
    "answered",
    "length",
    "max-turns",
    "context",
    "bad-call",
)
BAD_CALLS_MAX = 3
"""A conversation ends after this many consecutive turns whose calls cannot be parsed."""


class Conversation:
    """A chat between a model and its tools.

    Attributes:
        finish_reason: empty while it continues.
        answer: None if there is none.
        turns: completions so far.
        messages: in the form of the model's chat template.
        described: descriptions of tools, in the form of the template.
        transcript: the messages as users get them: role, content, ``tool_calls`` and ``name``.
    """

    def __init__(self, messages: Sequence[Message], protocol: CallProtocol, max_turns: int) -> None:
        """Starts a conversation.

        Args:
            messages: rendered, in the form of chat templates; at least one.
            protocol: how tools are described and calls are parsed.
            max_turns: it ends after this many completions.
        """
        self.finish_reason = ""
        self.answer: str | None = None
        self.turns = 0
        self.transcript: list[Message] = [dict(m) for m in messages]
        self.messages = protocol.prepare(self.transcript)
        self.described = protocol.described
        self.keeps_special_tokens = protocol.keeps_special_tokens
        self._protocol = protocol
        self._max_turns = max_turns
        self._bad = 0
        self._calls: tuple[ToolCall, ...] = ()
        self._numbered = 0

    def canonical(self) -> bytes:
        """Returns the bytes from which the next turn's seed is derived."""
        return canonical_bytes(self.messages)

    def schema(self) -> Mapping[str, Any] | None:
        """Returns the JSON schema that constrains the next completion, or None."""
        return self._protocol.schema(first=not self.turns, last=self.turns + 1 >= self._max_turns)

    def take(self, text: str, *, cut: bool) -> tuple[ToolCall, ...]:
        """Adds a completion.

        Args:
            text: the completion.
            cut: whether it ended at its limit of tokens.

        Returns:
            Calls to run, whose results go to :meth:`give`. Empty if the conversation has ended, or
            if the next turn must correct this one.
        """
        self.turns += 1
        reading = self._protocol.read(text)
        self.messages.append(self._protocol.assistant_message(text, reading, self._numbered))
        if reading.answer is not None:
            self._note("assistant", reading.answer)
            self.answer, self.finish_reason = reading.answer, LENGTH if cut else ANSWERED
            return ()
        if reading.problem:
            self._note("assistant", text)
            self._report_problem(reading.problem)
            return ()
        self._bad = 0
        calls = [{"name": c.name, "arguments": dict(c.arguments)} for c in reading.calls]
        self._note("assistant", reading.text, tool_calls=calls)
        if self.turns >= self._max_turns:
            self.finish_reason = MAX_TURNS
            return ()
        self._calls = reading.calls
        return reading.calls

    def give(self, results: Sequence[str]) -> None:
        """Adds the results of the calls, in order."""
        for call, text in zip(self._calls, results, strict=True):
            self._note("tool", text, name=call.name)
        self.messages += self._protocol.results(self._calls, results, self._numbered)
        self._numbered += len(self._calls)

    def end(self, finish_reason: str) -> None:
        """Ends the conversation with this reason."""
        self.finish_reason = finish_reason

    def _report_problem(self, problem: str) -> None:
        self._bad += 1
        self._note("tool", f"error: {problem}")
        self.messages.append(tool_response(f"error: {problem}"))
        if self._bad >= BAD_CALLS_MAX:
            self.finish_reason = BAD_CALL
        elif self.turns >= self._max_turns:
            self.finish_reason = MAX_TURNS

    def _note(self, role: str, content: str, **more: Any) -> None:
        self.transcript.append({"role": role, "content": content, **more})
