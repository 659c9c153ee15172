"""The parameters of a workflow: their types and values, and the fields where they are filled in.

An entry of ``spec.params`` is a plain value, or a declaration such as ``{type: integer, minimum:
1}``. The command line and the Python client set values and look for local files with this module;
admission checks declarations and fills in the rest (``flowmesh_core.spec.parameters``).
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from flowmesh_documents.scalars import RefusedScalarError, read_plain
from flowmesh_documents.substitution import Keys, Report, Substitution, without_missing
from flowmesh_documents.values import value_text

TYPES = ("string", "integer", "number", "boolean", "list", "object")
DECLARATION_FIELDS = (
    "type",
    "default",
    "required",
    "description",
    "doc",
    "enum",
    "minimum",
    "maximum",
    "pattern",
    "items",
    "maxItems",
    "schema",
)
FILLED_FIELDS = ("inputs", "outputs", "budgetUsd", "deadline")
"""Fields of the spec where ``${params.x}`` is filled in, besides the steps'."""
FILLED_STEP_FIELDS = ("inputs", "after", "matrix", "resources", "timeout", "retry", "cache")
"""Those of a step; in ``with`` and ``when`` the compiler does it, with the matrix values."""
_OF_COMPILER = ("with", "when")
_NAMES = {"inputs": ("secrets", "configMap"), "cache": ("ignoredInputs",)}
"""Names of Secrets, ConfigMaps and ports: access rules read them as they are written."""
_MENTION = re.compile(r"(?<!\$)\$\{\s*params\.([A-Za-z_][A-Za-z0-9_]*)")
_SHOWN = 40
_INT64 = 2**63


class ParameterError(ValueError):
    """A text is not a value of a parameter's type; the message names it, its type and the text."""


def is_declaration(entry: Any) -> bool:
    """Whether an entry declares a parameter; any other entry is its value.

    A mapping with a type, and with a default or ``required: true``, is one even where it has
    unknown fields, which are then mistakes.
    """
    if not isinstance(entry, Mapping) or entry.get("type") not in TYPES:
        return False
    marked = "default" in entry or isinstance(entry.get("required"), bool)
    return marked or all(field in DECLARATION_FIELDS for field in entry)


def type_of(entry: Any) -> str:
    """Returns the type of a parameter: as declared, or that of a plain value; empty of null."""
    if is_declaration(entry):
        return str(entry["type"])
    return next((name for name in TYPES if _is_of(entry, name)), "")


def default_of(entry: Any) -> tuple[Any, ...]:
    """Returns the value of a parameter that is not set, or nothing where it is required."""
    if not is_declaration(entry):
        return (entry,)
    if "default" in entry:
        return (_typed(entry, entry["default"]),)
    return (None,) if entry.get("required") is False else ()


def with_value(entry: Any, value: Any) -> Any:
    """Returns the entry with another value; a declaration stays one, and null needs it optional.

    An object that looks like a declaration itself becomes the value of one.
    """
    value = _typed(entry, value)
    if not is_declaration(entry):
        return {"type": "object", "default": value} if is_declaration(value) else value
    kept = {k: v for k, v in entry.items() if k != "required" or (value is None and v is False)}
    return {**kept, "default": value}


def type_problem(name: str, entry: Any, value: Any) -> str:
    """Returns why a value is not of a parameter's type; empty if it is."""
    expected = type_of(entry)
    if (
        not expected
        or _is_of(_typed(entry, value), expected)
        or (value is None and default_of(entry) == (None,))
    ):
        return ""
    return f"{_described(name, entry)}, got {shown(value)}"


def read_value(name: str, entry: Any, text: str) -> Any:
    """Returns the value that a text of the command line means, by the parameter's type.

    Raises:
        ParameterError: it is not of that type.
    """
    expected = type_of(entry)
    if expected == "string":
        return text
    try:
        value = _structure(text) if expected in {"list", "object"} else read_plain(text.strip())
    except RefusedScalarError as e:
        raise ParameterError(f"{_described(name, entry)}: {e}") from e
    if type_problem(name, entry, value):
        raise ParameterError(f"{_described(name, entry)}, got {shown(text)}")
    return _typed(entry, value)


def item_problem(kind: str, value: Any) -> str:
    """Returns why an element of a list is not of a type; empty if it is."""
    wanted = whole(value) if kind == "integer" else value
    return "" if _is_of(wanted, kind) else f"is {article(kind)}, got {shown(value)}"


def whole(value: Any) -> Any:
    """Returns the integer that a float is equal to, if 64 bits hold it; any other value as it is.

    1.0 is an integer to JSON Schema, and the API server stores it as 1. A large one has the digits
    of its shortest text, and then zeros, as Go writes it.
    """
    is_whole = isinstance(value, float) and value.is_integer() and -_INT64 <= value < _INT64
    return int(Decimal(repr(value))) if is_whole else value


def whole_numbers(value: Any) -> Any:
    """Returns a document with 1 in place of every 1.0, as the API server stores it."""
    if isinstance(value, dict):
        return {key: whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_numbers(inner) for inner in value]
    return whole(value)


def missing_value(name: str, how: str = "write a value") -> str:
    """Returns the message for a parameter without a value.

    Args:
        name: the parameter's.
        how: what the reader may do, other than to write a default. The operator and the API do not
            know who reads it; ``fmesh`` and the Python client put their own way in its place.
    """
    return f"params.{name} is required: {how}, or a default here"


def article(kind: str) -> str:
    """Returns a type with its article, for errors."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def shown(value: Any) -> str:
    """Returns a value as errors show it."""
    text = repr(value) if isinstance(value, str) else value_text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def parameter_values(params: Any) -> dict[str, Any]:
    """Returns the values of the parameters that have one, unchecked."""
    if not isinstance(params, Mapping):
        return {}
    return {name: value for name, entry in params.items() for value in default_of(entry)}


def named_parameters(value: Any) -> set[str]:
    """Returns the parameters that a value has references to."""
    return {name for _, names in _references(value) for name in names}


def filled(value: Any, params: Any) -> Any:
    """Returns a value with the references to parameters that have a value filled in, unchecked."""
    return Substitution(parameter_values(params)).fill(value, lambda _keys, _message: None)


def fill_spec(spec: Mapping[str, Any], names: Substitution, report: Report) -> dict[str, Any]:
    """Returns a workflow's spec with references to parameters filled in, but in with and when.

    Args:
        spec: as it was written; it is not changed.
        names: fills in.
        report: called with the place and message of every unknown name, and of every reference
            where none is filled in.
    """
    out = dict(spec)
    for field, value in spec.items():
        keys: Keys = ("spec", field)
        if field == "steps" and isinstance(value, list):
            out[field] = [_step(s, names, report, (*keys, i)) for i, s in enumerate(value)]
        elif field == "inputs" and isinstance(value, dict):
            given = {
                n: _without_names(field, v, names, report, (*keys, n)) for n, v in value.items()
            }
            out[field] = without_missing(given, value)
        elif field in FILLED_FIELDS:
            out[field] = names.fill(value, report, keys)
        elif field != "params":
            _refuse(value, report, keys)
    return without_missing(out, spec)


def _step(step: Any, names: Substitution, report: Report, keys: Keys) -> Any:
    if not isinstance(step, dict):
        return step
    out = dict(step)
    for field, value in step.items():
        if field == "cache":
            out[field] = _without_names(field, value, names, report, (*keys, field))
        elif field in FILLED_STEP_FIELDS:
            out[field] = names.fill(value, report, (*keys, field))
        elif field not in _OF_COMPILER:
            _refuse(value, report, (*keys, field))
    return without_missing(out, step)


def _without_names(field: str, value: Any, names: Substitution, report: Report, keys: Keys) -> Any:
    """Fills in all of a mapping but the names in it."""
    if not isinstance(value, dict):
        return names.fill(value, report, keys)
    out = dict(value)
    for key, inner in value.items():
        if key in _NAMES[field]:
            _refuse(inner, report, (*keys, key))
        else:
            is_rows = field == "inputs" and key == "rows"
            out[key] = names.fill(inner, report, (*keys, key), keep_null=is_rows)
    return without_missing(out, value)


def _refuse(value: Any, report: Report, keys: Keys) -> None:
    """Reports references in a value that is read as it is written."""
    for place, names in _references(value, keys):
        report(place, f"${{params.{names[0]}}} is not filled in here; write the value")


def _references(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, list[str]]]:
    """Yields each text with references, by its place, and the parameters that it names."""
    if isinstance(value, str):
        if names := _MENTION.findall(value):
            yield keys, names
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _references(inner, (*keys, key))


def _typed(entry: Any, value: Any) -> Any:
    """Returns a value of an integer, or of a declared list of them, with 1 in place of 1.0."""
    if type_of(entry) == "integer":
        return whole(value)
    is_list = isinstance(value, list) and is_declaration(entry)
    if is_list and entry["type"] == "list" and entry.get("items") == "integer":
        return [whole(item) for item in value]
    return value


def _described(name: str, entry: Any) -> str:
    default, kind = default_of(entry), type_of(entry)
    has_default = bool(default) and default != (None,)
    return f"{name} is {article(kind) if kind else 'any value'}" + (
        f" (default {shown(default[0])})" if has_default else ""
    )


def _is_of(value: Any, kind: str) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float)
    kinds = {"string": str, "integer": int, "list": list, "object": Mapping}
    return isinstance(value, kinds[kind])


def _structure(text: str) -> Any:
    """Returns a list or mapping written as YAML or JSON; another text as it is."""
    from flowmesh_documents.document import parse_documents  # noqa: PLC0415 - loads ruamel.yaml

    documents, problems = parse_documents(text)
    return text if problems or len(documents) != 1 else documents[0].value
