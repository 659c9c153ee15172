"""Declarations of parameters: what their fields may be, and whether a value satisfies them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.patterns import PatternError, schema_pattern, searchable
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.json_schemas import BoundedSchema
from flowmesh_core.spec.field_notes import Keys
from flowmesh_core.spec.suggestions import did_you_mean, nearest
from flowmesh_documents.parameters import (
    DECLARATION_FIELDS,
    TYPES,
    article,
    is_declaration,
    item_problem,
    shown,
    type_problem,
    whole,
)
from flowmesh_documents.values import json_size

ITEMS_MAX = 10_000
"""Elements of a list that declares no ``maxItems``, which may not be more."""
_NUMBERS = ("integer", "number")
_BELONGS: Mapping[str, tuple[str, ...]] = {
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "pattern": ("string",),
    "items": ("list",),
    "maxItems": ("list",),
    "schema": ("list", "object"),
}
"""The types that a field of a declaration is for."""
Message = str


def declaration_problems(entry: Mapping[str, Any]) -> Iterator[tuple[Keys, Message]]:
    """Yields what is wrong with a declaration itself: the keys in it, and the message."""
    kind = str(entry["type"])
    for field, value in entry.items():
        if field not in DECLARATION_FIELDS:
            hint = did_you_mean(field, DECLARATION_FIELDS)
            yield (field,), f"a declaration has no field {field!r}{hint}"
        elif kind not in _BELONGS.get(field, TYPES):
            belongs = " or ".join(article(k) for k in _BELONGS[field])
            yield (field,), f"{field} is for {belongs}, this is {article(kind)}"
        elif field in _FORMS and (message := _FORMS[field](value)):
            yield (field,), message
    if entry.get("required") is True and "default" in entry:
        yield ("required",), "a parameter with a default is never missing; leave one of them out"


def value_problems(name: str, entry: Mapping[str, Any], value: Any) -> Iterator[Message]:
    """Yields why a value does not satisfy a declaration, which is right itself."""
    if value is None and entry.get("required") is False:
        return
    bare = {k: v for k, v in entry.items() if k != "default"}  # the default may be this value
    if problem := type_problem(name, bare, value):
        yield problem
        return
    for field, limit in entry.items():
        if field in _CHECKS and (problem := _CHECKS[field](limit, value)):
            yield f"{name} {problem}"
    if isinstance(value, list) and "maxItems" not in entry and (p := _max_items(ITEMS_MAX, value)):
        yield f"{name} {p}"


def given_problems(name: str, entry: Any, value: Any) -> Iterator[Message]:
    """Yields why a value given for a parameter does not satisfy what the workflow has of it.

    Nothing where that is wrong itself, which is reported at its place.
    """
    if is_declaration(entry) and not any(declaration_problems(entry)):
        yield from value_problems(name, entry, value)


# -- the fields of a declaration -----------------------------------------------------------------


def _boolean(value: Any) -> Message:
    return "" if isinstance(value, bool) else f"expected true or false, got {shown(value)}"


def _text(value: Any) -> Message:
    return "" if isinstance(value, str) else f"expected a string, got {shown(value)}"


def _number(value: Any) -> Message:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number else f"expected a number, got {shown(value)}"


def _choices(value: Any) -> Message:
    return "" if isinstance(value, list) and value else "expected a list of values, not empty"


def _regular_expression(value: Any) -> Message:
    if message := _text(value):
        return message
    try:
        schema_pattern(value)
    except PatternError as e:
        return f"this is not a regular expression of RE2: {e}"
    return ""


def _type_name(value: Any) -> Message:
    if isinstance(value, str) and value in TYPES:
        return ""
    hint = did_you_mean(value, TYPES) if isinstance(value, str) else ""
    return f"expected one of {', '.join(TYPES)}, got {shown(value)}{hint if 'mean' in hint else ''}"


def _count(value: Any) -> Message:
    count = whole(value)
    is_count = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= ITEMS_MAX
    return "" if is_count else f"expected 1 to {ITEMS_MAX}, got {shown(value)}"


def _json_schema(value: Any) -> Message:
    if not isinstance(value, Mapping):
        return f"expected a JSON schema, a mapping, got {shown(value)}"
    try:
        BoundedSchema(value, "schema")
    except FlowMeshError as e:
        return e.message
    return ""


_FORMS: Mapping[str, Callable[[Any], Message]] = {
    "required": _boolean,
    "description": _text,
    "doc": _text,
    "enum": _choices,
    "minimum": _number,
    "maximum": _number,
    "pattern": _regular_expression,
    "items": _type_name,
    "maxItems": _count,
    "schema": _json_schema,
}

# -- a value against them ------------------------------------------------------------------------


def _enum(choices: list[Any], value: Any) -> Message:
    if any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in choices):
        return ""
    texts = [c for c in choices if isinstance(c, str)]
    near = nearest(value, texts) if isinstance(value, str) else None
    hint = f"; did you mean {near!r}?" if near else ""
    return f"is one of {', '.join(map(shown, choices))}, got {shown(value)}{hint}"


def _minimum(limit: float, value: Any) -> Message:
    return "" if value >= limit else f"is at least {shown(limit)}, got {shown(value)}"


def _maximum(limit: float, value: Any) -> Message:
    return "" if value <= limit else f"is at most {shown(limit)}, got {shown(value)}"


def _pattern(pattern: str, value: Any) -> Message:
    matches = schema_pattern(pattern).search(searchable(value))
    return "" if matches else f"is a string that matches {pattern!r}, got {shown(value)}"


def _items(kind: str, value: Any) -> Message:
    for i, item in enumerate(value):
        if problem := item_problem(kind, item):
            return f"has elements of the type {kind}; element {i} {problem}"
    return ""


def _max_items(most: int, value: Any) -> Message:
    return "" if len(value) <= most else f"has {len(value)} elements, of at most {shown(most)}"


def _schema(schema: Mapping[str, Any], value: Any) -> Message:
    try:
        problem = BoundedSchema(schema, "schema").problem_of(value, json_size(value))
    except FlowMeshError as e:
        problem = e.message
    return f"does not satisfy its schema {problem}" if problem else ""


_CHECKS: Mapping[str, Callable[[Any, Any], Message]] = {
    "enum": _enum,
    "minimum": _minimum,
    "maximum": _maximum,
    "pattern": _pattern,
    "items": _items,
    "maxItems": _max_items,
    "schema": _schema,
}
