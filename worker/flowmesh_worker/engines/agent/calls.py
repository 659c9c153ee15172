"""Finds, parses and bounds the tool calls in a model's completion.

Models of the Hermes and Qwen families write ``<tool_call>{json}</tool_call>``, Llama models a bare
object, Mistral models a list; all of them name the function and its arguments. Nothing here raises:
a call that cannot be parsed becomes a problem that is reported to the model.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_CALLS = 8
"""Calls that one turn may make; with more, none is run and the model gets an error."""

_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*?)\n?```\s*\Z", re.DOTALL)
_PARTIAL_ANSWER = re.compile(r'\A\s*\{\s*"answer"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
_SHOWN = 120
_DEPTH = 32
_INT_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model made."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A parsed completion: calls, an answer, or a problem.

    Attributes:
        text: the text beside calls.
        calls: at most ``MAX_CALLS``.
        answer: the answer; None if the completion is not one.
        problem: why it cannot be parsed, for the model; empty if it can.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = field(default=())
    answer: str | None = None
    problem: str = ""


def parse_free(text: str) -> ParsedCompletion:
    """Parses an unconstrained completion: without a call it is an answer."""
    blocks = _BLOCK.findall(text)
    if blocks:
        return parse_calls(blocks, _BLOCK.sub("", text).strip())
    fenced = _FENCE.match(text.strip())
    bare = fenced[1] if fenced else text.strip()
    value = _json(bare) if bare[:1] in ("{", "[") else None
    listed = value if isinstance(value, list) else [value]
    if listed and all(_names_a_call(v) for v in listed):
        return parse_calls([json.dumps(v) for v in listed], "")
    return ParsedCompletion(answer=text.strip())


def parse_constrained(text: str) -> ParsedCompletion:
    """Parses a completion that was constrained to the form of a call or of an answer.

    It may still be cut off; the beginning of an answer counts as an answer.
    """
    value = _json(text)
    if isinstance(value, dict) and isinstance(value.get("answer"), str):
        return ParsedCompletion(answer=value["answer"])
    if value is None and (partial := _PARTIAL_ANSWER.match(text)):
        answer = _json(f'"{_HALF_ESCAPE.sub("", partial[1])}"')
        return ParsedCompletion(answer=answer if isinstance(answer, str) else partial[1])
    return parse_calls([text], "")


def parse_calls(blocks: list[str], text: str) -> ParsedCompletion:
    """Parses calls, each the JSON of a name and arguments, beside a text."""
    if len(blocks) > MAX_CALLS:
        return ParsedCompletion(
            text=text, problem=f"{len(blocks)} calls at once; at most {MAX_CALLS} are taken"
        )
    found = []
    for block in blocks:
        call = _call(block)
        if isinstance(call, str):
            return ParsedCompletion(text=text, problem=call)
        found.append(call)
    return ParsedCompletion(text=text, calls=tuple(found))


def _call(block: str) -> ToolCall | str:
    value = _json(block)
    if not isinstance(value, dict):
        return f"the call is no JSON object: {block.strip()[:_SHOWN]}"
    if not _names_a_call(value):
        return 'a call is {"name": NAME, "arguments": {...}}'
    given = value.get("arguments", value.get("parameters"))
    if isinstance(given, str):
        given = _json(given)
    if not isinstance(given, dict):
        return "the arguments of the call are no JSON object"
    if _deep(given, 0):
        return "the arguments of the call are nested too deeply"
    return ToolCall(str(value["name"]), given)


def _names_a_call(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and ("arguments" in value or "parameters" in value)
    )


def _json(text: str) -> Any:
    """Returns the value of a JSON text; None if it is not JSON.

    Line breaks and other control characters inside strings are accepted: models write them, with
    and without a grammar.
    """
    try:
        return _plain(json.loads(text.strip(), strict=False))
    except (ValueError, RecursionError):
        return None


def _deep(value: Any, depth: int) -> bool:
    if depth > _DEPTH:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_deep(v, depth + 1) for v in inner)


def _plain(value: Any) -> Any:
    """Returns a value that has a canonical form, as everything in a transcript must.

    Numbers beyond 64 bits become text, unpaired surrogates become question marks.
    """
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not -_INT_LIMIT <= value < _INT_LIMIT:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
