"""Checks JSON schemas that users write, deep enough to find mistakes before a model loads."""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.patterns import PatternError, schema_pattern
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.values import json_size

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMAS = (
    "items",
    "additionalProperties",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_DEPTH = 32
_BYTES = 64 * 1024


def schema_problem(schema: Any) -> str:
    """Returns what is wrong with a JSON schema, or an empty string."""
    problem = _problem(schema, "", 0)
    try:
        if not problem and (size := json_size(schema)) > _BYTES:
            return f"about {size} bytes, of at most {_BYTES}"
    except RecursionError:  # in a default, for example
        return "a value in it is nested too deeply"
    return problem


def _problem(schema: Any, where: str, depth: int) -> str:
    at = f"in {where}: " if where else ""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, Mapping):
        return f"{at}expected a JSON schema, a mapping"
    if depth > _DEPTH:
        return f"{at}nested more than {_DEPTH} levels deep"
    if where and "$schema" in schema:
        return f"{at}$schema is allowed only at the top level"
    return (
        _type_problem(schema, at)
        or _keyword_problem(schema, at)
        or _inner_problem(schema, where, depth)
    )


def _type_problem(schema: Mapping[str, Any], at: str) -> str:
    named = schema.get("type", [])
    for name in named if isinstance(named, list) else [named]:
        if name not in _TYPES:
            return f"{at}no type {name!r}{did_you_mean(str(name), _TYPES)}"
    return ""


def _keyword_problem(schema: Mapping[str, Any], at: str) -> str:
    if not isinstance(schema.get("required", []), list):
        return f"{at}required must be a list of names"
    if not isinstance(schema.get("enum", []), list):
        return f"{at}enum must be a list of values"
    reference = schema.get("$ref", "#")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return f"{at}$ref must name a place in the schema itself, such as #/$defs/name"
    patterns = [("pattern", schema["pattern"])] if "pattern" in schema else []
    named = schema.get("patternProperties", {})
    patterns += [("patternProperties", p) for p in named] if isinstance(named, Mapping) else []
    return next((p for k, v in patterns if (p := _pattern_problem(v, f"{at}{k}"))), "")


def _pattern_problem(pattern: Any, at: str) -> str:
    if not isinstance(pattern, str):
        return f"{at} must be a regular expression"
    try:
        schema_pattern(pattern)
    except PatternError as e:
        return f"{at} is not a regular expression of RE2: {e}"
    return ""


def _inner_problem(schema: Mapping[str, Any], where: str, depth: int) -> str:
    prefix = f"{where}." if where else ""
    inner: list[tuple[str, Any]] = [(k, schema[k]) for k in _SCHEMAS if k in schema]
    for key in _LISTS:
        if key in schema and not isinstance(schema[key], list):
            return f"in {prefix}{key}: expected a list of schemas"
        inner += [(f"{key}[{i}]", s) for i, s in enumerate(schema.get(key, []))]
    for key in _MAPS:
        if key in schema and not isinstance(schema[key], Mapping):
            return f"in {prefix}{key}: expected a mapping of schemas"
        inner += [(f"{key}.{name}", s) for name, s in schema.get(key, {}).items()]
    for key, value in inner:
        problem = _problem(value, prefix + key, depth + 1)
        if problem:
            return problem
    return ""
