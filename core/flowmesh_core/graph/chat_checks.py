"""Checks of parameters about chats and sampling, as far as admission can: forms, and column types.

Called by ``columns`` for every parameter of a step that is set.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.chat_templates import argument_problem, template_problem
from flowmesh_core.catalog.contract import Param
from flowmesh_core.catalog.engine_settings import FORMAT as ENGINE_SETTINGS
from flowmesh_core.catalog.engine_settings import settings_problems
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.paths import Key

_ROLES = ("system", "user", "assistant")
_MESSAGE_KEYS = frozenset({"role", "content"})
_TOKEN_MAX = 2**31 - 1
Found = tuple[tuple[Key, ...], str]
"""A place inside the parameter, and what is wrong there."""


def chat_problems(
    param: Param, value: Any, fields: Mapping[str, Any], texts: Collection[str]
) -> Iterator[Found]:
    """Yields what is wrong with a value of one of these formats.

    Args:
        param: the parameter.
        value: typed.
        fields: the step's identity fields.
        texts: the columns of the rows that are known to hold texts.
    """
    form = param.format
    if form == "chat":
        yield from _messages(value)
    elif form == "chat-rows" and value in texts:
        wanted = "a list of {role, content}"
        yield (), f"column {value!r} holds strings; {param.name} takes {wanted}"
    elif form == "chat-template" and (problem := template_problem(value)):
        yield (), problem
    elif form == ENGINE_SETTINGS:
        implementation = str(fields.get("implementation", ""))
        for name, problem in settings_problems(value, implementation):
            yield (name,), problem
    elif form in _BY_MEMBER:
        for place in value if isinstance(value, dict) else range(len(value)):
            item = place if isinstance(value, dict) else value[place]
            if problem := _BY_MEMBER[form](item):
                yield (place,), problem


def _token_problem(token: Any) -> str:
    whole = isinstance(token, int) and not isinstance(token, bool)
    fits = whole and 0 <= token <= _TOKEN_MAX
    return "" if fits else f"expected the number of a token, got {token!r}"


def _word_problem(word: Any) -> str:
    fits = isinstance(word, str) and word.strip()
    return "" if fits else f"expected a text, got {word!r}"


_BY_MEMBER: Mapping[str, Callable[[Any], str]] = {
    "chat-template-args": argument_problem,
    "token-ids": _token_problem,
    "words": _word_problem,
}
"""What is wrong with one member of a value, by the value's format."""


def _messages(messages: Any) -> Iterator[Found]:
    count = 0
    for i, message in enumerate(messages):
        count += 1
        if not isinstance(message, dict) or set(message) != _MESSAGE_KEYS:
            yield (i,), "expected a message {role: user, content: text}"
            continue
        if message["role"] not in _ROLES:
            hint = did_you_mean(str(message["role"]), _ROLES)
            yield (i, "role"), f"no role {message['role']!r}{hint}"
        if not isinstance(message["content"], str):
            yield (i, "content"), _content_problem(message["content"])
    if not count:
        yield (), "expected at least one message {role: user, content: text}"


def _content_problem(content: Any) -> str:
    wanted = "expected a string, a template over the columns"
    parts = content if isinstance(content, list) else ()
    kinds = [p["type"] for p in parts if isinstance(p, dict) and isinstance(p.get("type"), str)]
    other = [kind for kind in kinds if kind != "text"]
    return f"content part {other[0]}: models here read only text; {wanted}" if other else wanted
