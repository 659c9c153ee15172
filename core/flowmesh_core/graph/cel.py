"""CEL as conditions use it: parsed once, with numbers that compare by value.

The library compares integers with integers only; the API server compares 1 with 1.0, and so do
conditions here. Values of different kinds are unequal rather than an error.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError, base_functions

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_SPECIAL_FUNCTIONS = frozenset({"has", "dyn"})
_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)


class ConditionError(ValueError):
    """A condition that is no CEL, names what is not there, or gives no truth value."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Any:
    """The syntax tree of a condition.

    Raises:
        ConditionError: it is no CEL.
    """
    try:
        return _environment().compile(text)
    except celpy.CELParseError as e:
        column = getattr(e, "column", None)
        at = f"; look at character {column}" if column else ""
        raise ConditionError(f"{text!r} is no CEL condition{at}") from e


@lru_cache(maxsize=4096)
def program(text: str) -> Any:
    """A condition ready to be evaluated.

    Raises:
        ConditionError: it is no CEL.
    """
    return _environment().program(parse(text), functions=_FUNCTIONS)


def truth(text: str, names: Mapping[str, Any]) -> bool:
    """Evaluates a condition.

    Args:
        text: the condition.
        names: what it may name, as JSON-like values.

    Raises:
        ConditionError: it cannot be evaluated on these values, or gives neither true nor false.
    """
    try:
        value = program(text).evaluate({n: json_to_cel(_plain(v)) for n, v in names.items()})
    except (CELEvalError, ValueError, TypeError) as e:
        reason = e.args[0] if e.args else e
        raise ConditionError(f"the condition {text!r} failed: {reason}") from e
    if not isinstance(value, celtypes.BoolType):
        raise ConditionError(f"the condition {text!r} gave {value!r}, not true or false")
    return bool(value)


def known_functions() -> set[str]:
    """Functions, methods and macros that a condition may call."""
    return {f for f in base_functions if f.isidentifier()} | MACROS | _SPECIAL_FUNCTIONS


@cache
def _environment() -> Any:
    return celpy.Environment()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _compared(name: str) -> Callable[[Any, Any], Any]:
    standard = base_functions[name]

    def compare(a: Any, b: Any) -> Any:
        if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and type(a) is not type(b):
            a, b = celtypes.DoubleType(float(a)), celtypes.DoubleType(float(b))
        return standard(a, b)

    return compare


def _equal(a: Any, b: Any) -> Any:
    for value in (a, b):
        if isinstance(value, CELEvalError):
            return value
    if type(a) is type(b):
        return celtypes.BoolType(True) if a is None else base_functions["_==_"](a, b)
    both_numbers = isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)
    return celtypes.BoolType(both_numbers and float(a) == float(b))


def _unequal(a: Any, b: Any) -> Any:
    equal = _equal(a, b)
    return celtypes.BoolType(not equal) if isinstance(equal, celtypes.BoolType) else equal


_FUNCTIONS: dict[str, Any] = {
    **{name: _compared(name) for name in ("_<_", "_<=_", "_>_", "_>=_")},
    "_==_": _equal,
    "_!=_": _unequal,
}
