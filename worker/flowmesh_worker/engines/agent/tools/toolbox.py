"""Runs tool calls: checks arguments, reports errors to the model, limits results."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.agent.calls import ToolCall
from flowmesh_worker.engines.agent.tools.tool import CallSite, Tool, ToolError
from flowmesh_worker.engines.row_gather import all_or_none

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}


class Toolbox:
    """The tools of one action, by name."""

    def __init__(self, tools: Sequence[Tool], max_chars: int) -> None:
        """Creates a toolbox; longer results are cut to ``max_chars``."""
        self._tools = {tool.name: tool for tool in tools}
        self._max_chars = max_chars

    def descriptions(self) -> list[dict[str, Any]]:
        """Returns the tools in the form of chat templates."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in self._tools.values()
        ]

    async def run(self, calls: Sequence[ToolCall], place: CallSite) -> list[str]:
        """Runs a turn's calls at once; returns their results or error texts, in order.

        Raises:
            AttemptError: the failure is retryable (a killed process, say). Reported to the model,
                it would become part of a cached result that others reuse.
        """
        return await all_or_none(
            self._one(call, CallSite(place.action_id, f"{place.name}/{i}"))
            for i, call in enumerate(calls)
        )

    async def _one(self, call: ToolCall, place: CallSite) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"error: {_unknown(call.name, list(self._tools))}"
        problem = _problem(tool.parameters, call.arguments)
        if problem:
            return f"error: {problem}"
        try:
            return self._bounded(await tool.call(call.arguments, place))
        except ToolError as error:
            return self._bounded(f"error: {error}")
        except AttemptError as error:
            failure = error.failure
            if failure.retryable:
                raise
            parts = (failure.message, failure.detail)
            return self._bounded("error: " + "\n".join(p for p in parts if p))
        except MemoryError:
            return "error: it needs more memory than there is"

    def _bounded(self, text: str) -> str:
        if len(text) <= self._max_chars:
            return text
        return f"{text[: self._max_chars]}\n[cut; it has {len(text):,} characters]"


def _unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"there is no tool {name[:80]!r}; {hint}"


def _problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Returns what is wrong with a call's arguments, or an empty string."""
    properties: Mapping[str, Mapping[str, Any]] = schema["properties"]
    missing = [name for name in schema["required"] if name not in arguments]
    if missing:
        return f"the argument {missing[0]!r} is missing"
    for name, value in arguments.items():
        wanted = properties.get(name)
        if wanted is None:
            return f"there is no argument {name[:80]!r}; there are {', '.join(properties)}"
        problem = _value_problem(name, value, wanted)
        if problem:
            return problem
    return ""


def _value_problem(name: str, value: Any, wanted: Mapping[str, Any]) -> str:
    if isinstance(value, bool) or not isinstance(value, _TYPES[wanted["type"]]):
        return f"the argument {name!r} is no {wanted['type']}"
    if "enum" in wanted and value not in wanted["enum"]:
        return f"the argument {name!r} is none of {', '.join(wanted['enum'])}"
    if not wanted.get("minimum", value) <= value <= wanted.get("maximum", value):
        return f"{name!r} is {value}; from {wanted['minimum']} to {wanted['maximum']} will do"
    if len(str(value)) > wanted.get("maxLength", len(str(value))):
        return f"the argument {name!r} is longer than {wanted['maxLength']:,} characters"
    return ""
