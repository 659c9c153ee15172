"""The text that a template prints for a value: of lists, objects and booleans their JSON.

Used by ``templates`` wherever a value becomes a text: in ``{{ }}``, in ``~``, and in filters that
work on texts. A value that has no such text is an error, so nobody reads Python's notation or an
address in memory.
"""

import json
from collections.abc import Iterator
from typing import Any

from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Undefined

INDENT_MAX = 64


class NullInTemplateError(TemplateRuntimeError):
    """A template would print a null."""


def text_of(value: Any) -> Any:
    """Returns what is printed for a value.

    Texts and numbers are returned as they are, and so is an undefined value, which refuses to be
    printed itself.

    Raises:
        NullInTemplateError: the value is null.
        TemplateRuntimeError: it is not of a type that JSON has.
    """
    if value is None:
        raise NullInTemplateError("prints a null")
    if isinstance(value, bool | list | tuple | dict):
        return json_of(value)
    if isinstance(value, str | int | float | Undefined):
        return value
    raise TemplateRuntimeError(_unprintable(value))


def json_of(value: Any, indent: int | str | None = None) -> str:
    """Returns a value as JSON in UTF-8, compact where ``indent`` is None, with sorted keys.

    The keys are sorted because their order is not a part of a row's digest.

    Raises:
        TemplateRuntimeError: the value has a part that JSON does not have.
    """
    try:
        return json.dumps(
            value,
            default=_refuse,
            ensure_ascii=False,
            allow_nan=False,
            indent=indent,
            separators=(",", ":") if indent is None else (",", ": "),
            sort_keys=True,
        )
    except (TypeError, ValueError) as e:
        raise TemplateRuntimeError(f"cannot be printed as JSON: {e}") from e


def _refuse(value: Any) -> str:
    if isinstance(value, Undefined):
        return str(value)  # raises the error that names it
    raise TemplateRuntimeError(_unprintable(value))


def _unprintable(value: Any) -> str:
    if isinstance(value, bytes):
        return "bytes cannot be printed; store text in the column"
    if isinstance(value, Iterator | range) or hasattr(value, "__iter__"):
        return f"a {type(value).__name__} cannot be printed; add `| list`"
    return f"a {type(value).__name__} cannot be printed"
