"""Checks of single parameters of OpenAI's requests; each raises an error that names its place."""

from collections.abc import Callable, Mapping
from typing import Any

from flowmesh_core.openai.errors import (
    OpenAiError,
    invalid_type,
    invalid_value,
    missing_parameter,
    unknown_parameter,
)

Check = Callable[[Any, str], None]
"""Raises an ``OpenAiError`` if a value does not fit; called with the value and its place."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_SHOWN = 40


def integer(least: int, most: int) -> Check:
    """Returns the check of an integer between two bounds, both included."""

    def check(value: Any, param: str) -> None:
        if type(value) is not int:
            raise invalid_type(param, "an integer", value)
        _require_bounds(value, param, least, most, "integer")

    return check


def number(least: float, most: float) -> Check:
    """Returns the check of a number between two bounds, both included."""

    def check(value: Any, param: str) -> None:
        if type(value) not in (int, float):
            raise invalid_type(param, "a decimal", value)
        _require_bounds(value, param, least, most, "decimal")

    return check


def boolean(value: Any, param: str) -> None:
    """Requires true or false."""
    if type(value) is not bool:
        raise invalid_type(param, "a boolean", value)


def text(value: Any, param: str) -> None:
    """Requires a string of Unicode text."""
    if type(value) is not str:
        raise invalid_type(param, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid_value(param, "expected Unicode text without lone surrogates.") from None


def choice(*values: str) -> Check:
    """Returns the check of a string that must be one of these."""

    def check(value: Any, param: str) -> None:
        text(value, param)
        if value not in values:
            shown = " and ".join(f"'{v}'" for v in values)
            raise OpenAiError(
                f"Invalid value: '{value[:_SHOWN]}'. Supported values are: {shown}.",
                param=param,
                code="invalid_value",
            )

    return check


def text_or_list(most: int, least: int = 0) -> Check:
    """Returns the check of a string, or an array of some strings."""

    def check(value: Any, param: str) -> None:
        if isinstance(value, list):
            require_list(value, param, most, least)
            for i, item in enumerate(value):
                text(item, f"{param}[{i}]")
        elif type(value) is str:
            text(value, param)
        else:
            raise invalid_type(param, "a string or an array of strings", value)

    return check


def require_list(value: Any, param: str, most: int, least: int = 0) -> None:
    """Requires an array of some length."""
    if not isinstance(value, list):
        raise invalid_type(param, "an array", value)
    if not least <= len(value) <= most:
        above = len(value) > most
        bound = f"maximum length {most}" if above else f"minimum length {least}"
        raise invalid_value(
            param,
            f"array too {'long' if above else 'short'}. Expected an array with {bound},"
            f" but got an array with length {len(value)} instead.",
            f"array_{'above_max' if above else 'below_min'}_length",
        )


def require_members(value: Any, param: str, checks: Mapping[str, Check], *required: str) -> None:
    """Requires an object with members of these names only.

    Args:
        value: the object; a member that is null counts as missing.
        param: its place; empty for the body itself.
        checks: the check of each known member.
        required: the members that must be there.
    """
    if not isinstance(value, dict):
        raise invalid_type(param or "body", "an object", value)
    prefix = f"{param}." if param else ""
    for name in required:
        if value.get(name) is None:
            raise missing_parameter(prefix + name)
    for name, member in value.items():
        check = checks.get(name)
        if check is None:
            raise unknown_parameter(prefix + str(name)[:_SHOWN])
        if member is not None:
            check(member, prefix + name)


def _require_bounds(value: float, param: str, least: float, most: float, kind: str) -> None:
    if value < least:
        raise invalid_value(
            param,
            f"{kind} below minimum value. Expected a value >= {least}, but got {value} instead.",
            f"{kind}_below_min_value",
        )
    if not value <= most:  # also refuses NaN
        raise invalid_value(
            param,
            f"{kind} above maximum value. Expected a value <= {most}, but got {value} instead.",
            f"{kind}_above_max_value",
        )
