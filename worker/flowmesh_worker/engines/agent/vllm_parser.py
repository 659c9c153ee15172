"""Reads tool calls with one of vLLM's parsers, for models that write them in a form of their own.

Imported only by hosts whose engine is vLLM. A parser that finds no call leaves the completion as an
answer, as vLLM's server does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager

from flowmesh_worker.engines.agent.calls import ParsedCompletion, parse_calls
from flowmesh_worker.engines.agent.protocols import TemplateCalls
from flowmesh_worker.engines.errors import bad_input

_SHOWN = 200


class ParserCalls(TemplateCalls):
    """Tools in the form of the model's chat template, calls as a parser of vLLM reads them."""

    keeps_special_tokens = True

    def __init__(self, tools: Sequence[Mapping[str, Any]], name: str, tokenizer: Any) -> None:
        """Prepares a parser.

        Args:
            tools: their descriptions.
            name: of the parser, such as ``hermes``.
            tokenizer: of the model.

        Raises:
            AttemptError: bad input; there is no such parser, or it is for other models.
        """
        super().__init__(tools)
        known = ToolParserManager.list_registered()
        if name not in known:
            raise bad_input(
                f"this worker's vLLM has no parser of tool calls {name!r}",
                f"toolParser is one of {', '.join(sorted(known))}",
            )
        self._request = ChatCompletionRequest(messages=[], tools=list(tools), tool_choice="auto")
        try:
            self._parser = ToolParserManager.get_tool_parser(name)(tokenizer, self._request.tools)
        except (RuntimeError, ValueError) as e:  # a token that it looks for is missing
            raise bad_input(
                f"the parser {name!r} does not fit the model: {e}",
                "choose the toolParser that the model's authors name",
            ) from e

    def read(self, text: str) -> ParsedCompletion:
        """See :class:`CallProtocol`."""
        try:
            found = self._parser.extract_tool_calls(text, self._request)
        except Exception as e:
            return ParsedCompletion(problem=f"the call cannot be read: {e}"[:_SHOWN])
        if not found.tools_called:
            return ParsedCompletion(answer=(found.content or text).strip())
        calls = [
            json.dumps({"name": call.function.name, "arguments": call.function.arguments})
            for call in found.tool_calls
        ]
        return parse_calls(calls, (found.content or "").strip())
