"""Turns pydantic's errors into ours: the field, what is wrong, what was expected, a near name."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from flowmesh_api.v1.problems import Problem
from flowmesh_core.spec.field_notes import FieldNotes
from flowmesh_core.spec.fields import PATTERN_WORDS
from flowmesh_core.spec.suggestions import did_you_mean, nearest
from flowmesh_documents.paths import Key, path_text
from flowmesh_documents.values import value_text

RULE = "flowmesh_rule"
"""The type of the errors that the models' own rules raise, whose message is used as it is."""

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_NUMBER = re.compile(r"[+-]?(\d++(\.\d*+)?|\.\d++)([eE][+-]?\d++)?")
_UNQUOTED = {
    "int_type": re.compile(r"[+-]?\d+"),
    "float_type": _NUMBER,
    "bool_type": re.compile("true|false"),
}
"""Strings that would be right without their quotes, by what was expected."""
_SHOWN = 40
_NO_NOTES = FieldNotes()
_ENTRIES = ("entry", "entries")


def problems_of(
    error: ValidationError, model: type[BaseModel], notes: FieldNotes = _NO_NOTES
) -> list[Problem]:
    """Returns one problem for each error of the models.

    Args:
        error: raised by validation.
        model: the model that was validated, for near names.
        notes: say which values came from parameters.
    """
    return [
        Problem(path_text(location(e)), _message(e, model) + notes.origin(location(e)))
        for e in error.errors()
    ]


def location(error: ErrorDetails) -> tuple[Key, ...]:
    """Returns the keys of the field that an error is about."""
    return tuple(k for k in error["loc"] if k != "[key]")


def _message(error: ErrorDetails, model: type[BaseModel]) -> str:
    kind = error["type"]
    if kind == "missing":
        return f"is required{_purpose(model, location(error))}"
    if kind == "extra_forbidden":
        *parent, last = location(error)
        name, valid = str(last), list(_names(model, tuple(parent)))
        for listed in valid:
            if name in _names(model, (*parent, listed, 0)):
                return f"no field {name!r} here; it is a field of an entry of {listed!r}"
        return f"no field {name!r} here{did_you_mean(name, valid)}"
    if kind in _EXPECTED:
        form = _form(model, location(error)) if kind == "string_type" else ""
        wanted, hint = (form, "") if form else (_EXPECTED[kind], _hint(kind, error))
        return f"expected {wanted}, got {describe(error['input'])}{hint}"
    if kind in _BY_KIND:
        return _BY_KIND[kind](error, error.get("ctx") or {})
    return error["msg"] if kind == RULE else f"{error['msg'][:1].lower()}{error['msg'][1:]}"


def _pattern(error: ErrorDetails, ctx: Mapping[str, Any]) -> str:
    words = PATTERN_WORDS.get(str(ctx.get("pattern")), "another form")
    return f"expected {words}, got {describe(error['input'])}"


def _bound(error: ErrorDetails, ctx: Mapping[str, Any]) -> str:
    side, bound = ("at least", ctx["ge"]) if "ge" in ctx else ("at most", ctx["le"])
    return f"expected {side} {value_text(bound)}, got {describe(error['input'])}"


def _length(error: ErrorDetails, ctx: Mapping[str, Any]) -> str:
    side = "at least" if "min_length" in ctx else "at most"
    bound = ctx.get("min_length", ctx.get("max_length"))
    one, several = ("character", "characters") if "string" in error["type"] else _ENTRIES
    return f"expected {side} {bound} {one if bound == 1 else several}"


def _hint(kind: str, error: ErrorDetails) -> str:
    if kind == "string_type" and isinstance(error["input"], int | float):
        return "; put it in quotes"
    if kind in _UNQUOTED and isinstance(error["input"], str):
        return "; write it without quotes" if _UNQUOTED[kind].fullmatch(error["input"]) else ""
    return ""


def _literal(error: ErrorDetails, ctx: Mapping[str, Any]) -> str:
    expected = str(ctx.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
    got = error["input"]
    near = nearest(got, expected) if isinstance(got, str) else None
    hint = f"; did you mean {near!r}?" if near else ""
    listed = expected[0] if len(expected) == 1 else f"one of {', '.join(expected)}"
    return f"expected {listed}, got {describe(got)}{hint}"


def describe(value: Any) -> str:
    """Returns a short text of a value and its kind."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {value if len(value) <= _SHOWN else value[:_SHOWN] + '…'!r}"
    return "a list" if isinstance(value, list | tuple) else "a mapping"


def _names(model: type[BaseModel], keys: tuple[Key, ...]) -> Iterable[str]:
    inner = _model_at(model, keys)
    return () if inner is None else [f.alias or n for n, f in inner.model_fields.items()]


def _purpose(model: type[BaseModel], keys: tuple[Key, ...]) -> str:
    inner = _model_at(model, keys[:-1])
    for name, info in (inner.model_fields if inner else {}).items():
        if (info.alias or name) != keys[-1]:
            continue
        if get_origin(info.annotation) is Literal and len(only := get_args(info.annotation)) == 1:
            return f": {only[0]}"
        if info.description:
            return f": {info.description[:1].lower()}{info.description[1:].rstrip('.')}"
    return ""


def _form(model: type[BaseModel], keys: tuple[Key, ...]) -> str:
    """The form of a string field, or an empty string where any will do."""
    inner = _model_at(model, keys[:-1])
    for name, info in (inner.model_fields if inner else {}).items():
        if (info.alias or name) == keys[-1]:
            within = [m for a in get_args(info.annotation) for m in getattr(a, "__metadata__", ())]
            patterns = (getattr(m, "pattern", None) for m in [*info.metadata, *within])
            return next((PATTERN_WORDS[str(p)] for p in patterns if p in PATTERN_WORDS), "")
    return ""


def _model_at(model: type[BaseModel], keys: tuple[Key, ...]) -> type[BaseModel] | None:
    """The model of the value under these keys, or None where it is not a model."""
    found: Any = model
    for key in keys:
        if isinstance(found, type) and issubclass(found, BaseModel):
            fields = {f.alias or n: f for n, f in found.model_fields.items()}
            if key not in fields:
                return None
            found = fields[str(key)].annotation
        else:
            args = [a for a in get_args(found) if a is not NoneType]
            found = args[-1] if get_origin(found) in {list, dict} and args else None
        options = [a for a in get_args(found) if a is not NoneType]
        if get_origin(found) not in {list, dict} and len(options) == 1:
            found = options[0]
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


_BY_KIND: Mapping[str, Callable[[ErrorDetails, Mapping[str, Any]], str]] = {
    "literal_error": _literal,
    "string_pattern_mismatch": _pattern,
    **dict.fromkeys(("greater_than_equal", "less_than_equal"), _bound),
    **dict.fromkeys(("too_short", "too_long", "string_too_short", "string_too_long"), _length),
}
