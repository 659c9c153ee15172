"""Types the values of ``with`` by the contract, before anything is hashed.

The compiler calls :func:`effective_params` once per step. A number parameter is always a float and
an integer parameter always an int, however the file spelled it. Strings are never read as numbers:
``1e-5`` is a number, ``"1e-5"`` is not.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.canonical import INT_MAX, INT_MIN, canonical_bytes, decode
from flowmesh_documents.values import value_text

_WANTED = {
    ParamType.STRING: "a string",
    ParamType.INTEGER: "an integer",
    ParamType.NUMBER: "a number",
    ParamType.BOOLEAN: "true or false",
    ParamType.LIST: "a list",
    ParamType.OBJECT: "an object",
    ParamType.ANY: "a value",
}


def effective_params(
    contract: EngineContract, given: Mapping[str, Any], *, where: str = "with"
) -> dict[str, Any]:
    """Types the given parameters and fills in the contract's defaults.

    Args:
        contract: the engine's contract.
        given: ``with`` after references are resolved, without the identity fields.
        where: the path for errors.

    Returns:
        Every parameter of the contract, typed; engines get it, and it is hashed.

    Raises:
        IdentityError: an unknown or missing parameter, or a value of the wrong type or range.
    """
    known = {p.name: p for p in contract.params}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(sorted(known))}"
            raise IdentityError(
                f"{contract.name} has no parameter {name!r}", where=f"{where}.{name}", remedy=hint
            )
    out: dict[str, Any] = {}
    for p in contract.params:
        if p.name in given:
            out[p.name] = coerce(p, given[p.name], where=f"{where}.{p.name}")
        elif p.required:
            raise IdentityError(
                f"{contract.name} needs the parameter {p.name!r}",
                where=where,
                remedy=f"add {p.name}: {_WANTED[p.type]}",
            )
        else:
            out[p.name] = default_of(p)
    return out


def default_of(param: Param) -> Any:
    """Returns the default of a parameter, typed as a given value would be."""
    return None if param.default is None else coerce(param, param.default)


def coerce(param: Param, value: Any, *, where: str = "") -> Any:
    """Returns a value as the parameter's type.

    Null stands for the default where the default is null; otherwise it is an error.

    Args:
        param: the parameter.
        value: as the file has it.
        where: the path for errors; the parameter's name where empty.

    Returns:
        str, int, float, bool, list, dict or None. Inside lists and objects, and for ``any``, an
        integral float is an int, as the API server would return it.

    Raises:
        IdentityError: the wrong type, out of range, not among the choices, or no canonical form.
    """
    where = where or param.name
    if value is None:
        if not param.required and param.default is None:
            return None
        raise _wrong(param, value, where, "")
    typed = _typed(param, value, where)
    _check_range(param, typed, where)
    if param.choices and not any(typed == c and _alike(typed, c) for c in param.choices):
        listed = ", ".join(repr(c) for c in param.choices)
        raise IdentityError(f"{value!r} is not allowed", where=where, remedy=f"use one of {listed}")
    if param.items:
        _check_items(param, typed, where)
    return typed


def _check_items(param: Param, values: Any, where: str) -> None:
    for i, value in enumerate(values):
        if not any(value == c and _alike(value, c) for c in param.items):
            near = difflib.get_close_matches(str(value), map(str, param.items), n=1)
            listed = ", ".join(map(repr, param.items))
            raise IdentityError(
                f"{value!r} is not allowed",
                where=f"{where}[{i}]",
                remedy=f"did you mean {near[0]!r}?" if near else f"use any of {listed}",
            )


_CLASSES: Mapping[ParamType, tuple[tuple[type, ...], str]] = {
    ParamType.STRING: ((str,), "quote it"),
    ParamType.BOOLEAN: ((bool,), "write true or false without quotes"),
    ParamType.LIST: ((list, tuple), "write it as [a, b]"),
    ParamType.OBJECT: ((dict,), "write it as {key: value}"),
    ParamType.ANY: ((object,), ""),
}


_NUMBER = ParamType.NUMBER
_INTEGER = ParamType.INTEGER
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def _typed(param: Param, value: Any, where: str) -> Any:
    if param.type is _NUMBER:
        return _number(param, value, where)
    if param.type is _INTEGER:
        return _integer(param, value, where)
    classes, remedy = _CLASSES[param.type]
    if type(value) is str and str in classes and value.isascii():
        return value  # as it would be read back
    if not isinstance(value, classes):
        raise _wrong(param, value, where, remedy)
    return _checked(_untyped(value), where)


def _number(param: Param, value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(param, value, where, _unquote(value))
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isinstance(value, int) and number != value:
        raise IdentityError(f"{value} is not exact as a number", where=where, remedy="round it")
    return float(_checked(number, where))


def _integer(param: Param, value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(param, value, where, _unquote(value))
    if isinstance(value, float) and not value.is_integer():
        raise _wrong(param, value, where, "round it")
    return int(_checked(int(value), where))


def _untyped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _untyped(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_untyped(v) for v in value]
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    return value


def _checked(value: Any, where: str) -> Any:
    """Returns the value as it is read back from its canonical form."""
    try:
        return decode(canonical_bytes(value))
    except IdentityError as e:
        inner = e.where if e.where.startswith("[") or not e.where else f".{e.where}"
        raise IdentityError(e.message, where=where + inner, remedy=e.remedy) from e


def _check_range(param: Param, value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if param.minimum is not None and value < param.minimum:
        least = value_text(param.minimum)
        raise IdentityError(f"{value} is less than the least allowed {least}", where=where)
    if param.maximum is not None and value > param.maximum:
        most = value_text(param.maximum)
        raise IdentityError(f"{value} is more than the most allowed {most}", where=where)


def _alike(a: Any, b: Any) -> bool:
    """Whether both are booleans or neither is: ``True == 1`` must not match, ``1.0 == 1`` may."""
    return isinstance(a, bool) == isinstance(b, bool)


def _unquote(value: Any) -> str:
    """The remedy for a number in quotes; empty for other strings, which are not numbers."""
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return ""
    return "write it without quotes"


def _wrong(param: Param, value: Any, where: str, remedy: str) -> IdentityError:
    got = "null" if value is None else f"the {_kind(value)} {_short(value)}"
    return IdentityError(f"expected {_WANTED[param.type]}, got {got}", where=where, remedy=remedy)


def _kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}
    names |= {list: "list", tuple: "list"}
    return names.get(type(value), type(value).__name__)


def _short(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    limit = 60
    return text if len(text) <= limit else text[:limit] + "…"
