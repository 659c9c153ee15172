"""Checks of the parts of a chat: messages, tools and the response's format.

Contents are text: what an engine would fetch (images, audio, files) is refused here.
"""

from typing import Any

from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.openai.errors import OpenAiError, invalid_type, invalid_value, missing_parameter
from flowmesh_core.openai.parameters import (
    boolean,
    choice,
    require_list,
    require_members,
    text,
)

_MESSAGES = 4096
_PARTS = 256
_TOOLS = 128
_NAME_CHARS = 64


def messages(value: Any, param: str) -> None:
    """Requires the messages of a chat, all of text."""
    require_list(value, param, _MESSAGES, 1)
    for i, message in enumerate(value):
        at = f"{param}[{i}]"
        members = {
            "role": choice("system", "developer", "user", "assistant", "tool"),
            "content": _content,
            "name": text,
            "tool_calls": _tool_calls,
            "tool_call_id": text,
        }
        require_members(message, at, members, "role")
        if message.get("content") is None and not message.get("tool_calls"):
            raise missing_parameter(f"{at}.content")


def tools(value: Any, param: str) -> None:
    """Requires descriptions of functions."""
    require_list(value, param, _TOOLS)
    for i, tool in enumerate(value):
        members = {"type": choice("function"), "function": _function}
        require_members(tool, f"{param}[{i}]", members, "type", "function")


def tool_choice(value: Any, param: str) -> None:
    """Requires a mode, or the name of one function."""
    if isinstance(value, str):
        choice("none", "auto", "required")(value, param)
        return
    members = {"type": choice("function"), "function": _named_function}
    require_members(value, param, members, "type", "function")


def response_format(value: Any, param: str) -> None:
    """Requires text, a JSON object, or JSON of a schema within limits."""
    members = {"type": choice("text", "json_object", "json_schema"), "json_schema": _json_schema}
    require_members(value, param, members, "type")
    if value["type"] == "json_schema" and value.get("json_schema") is None:
        raise missing_parameter(f"{param}.json_schema")


def stream_options(value: Any, param: str) -> None:
    """Requires the options of a stream."""
    require_members(value, param, {"include_usage": boolean})


def _content(value: Any, param: str) -> None:
    if isinstance(value, str):
        text(value, param)
        return
    if not isinstance(value, list):
        raise invalid_type(param, "a string or an array of text parts", value)
    require_list(value, param, _PARTS, 1)
    for i, part in enumerate(value):
        require_members(
            part, f"{param}[{i}]", {"type": choice("text"), "text": text}, "type", "text"
        )


def _tool_calls(value: Any, param: str) -> None:
    require_list(value, param, _TOOLS)
    for i, call in enumerate(value):
        members = {"id": text, "type": choice("function"), "function": _called_function}
        require_members(call, f"{param}[{i}]", members, "id", "type", "function")


def _called_function(value: Any, param: str) -> None:
    require_members(value, param, {"name": text, "arguments": text}, "name", "arguments")


def _named_function(value: Any, param: str) -> None:
    require_members(value, param, {"name": text}, "name")


def _function(value: Any, param: str) -> None:
    members = {"name": _name, "description": text, "parameters": _schema, "strict": boolean}
    require_members(value, param, members, "name")


def _json_schema(value: Any, param: str) -> None:
    members = {"name": _name, "description": text, "schema": _schema, "strict": boolean}
    require_members(value, param, members, "name", "schema")


def _name(value: Any, param: str) -> None:
    text(value, param)
    if not 1 <= len(value) <= _NAME_CHARS:
        raise invalid_value(param, f"expected a name of 1 to {_NAME_CHARS} characters.")


def _schema(value: Any, param: str) -> None:
    if not isinstance(value, dict):
        raise invalid_type(param, "an object", value)
    if problem := schema_problem(value):
        raise OpenAiError(f"Invalid schema for '{param}': {problem}", param=param)
