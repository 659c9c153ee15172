"""CEL as conditions use it: parsed once, with numbers that compare by value.

The library compares integers with integers only; the API server compares 1 with 1.0, and so do
conditions here. Values of different kinds are unequal rather than an error.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError, base_functions

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
LONGEST = 4096
"""Characters of a condition."""
TOO_DEEP = "the condition is nested too deeply; split it over several steps"
_CLASS = re.compile(r"<class 'celpy\.celtypes\.(\w+?)(?:Type)?'>")
_TOKEN = re.compile(r"Token\('\w+', '(\w+)'\)")
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
    if len(text) > LONGEST:
        raise ConditionError(f"the condition is of {len(text)} characters, of at most {LONGEST}")
    try:
        return _environment().compile(text)
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
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
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
    except (CELEvalError, ValueError, TypeError) as e:
        reason = _in_words(str(e.args[0] if e.args else e))
        raise ConditionError(f"the condition {text!r} failed: {reason}") from e
    if not isinstance(value, celtypes.BoolType):
        raise ConditionError(f"the condition {text!r} gave {str(value)!r}, not true or false")
    return bool(value)


def _in_words(reason: str) -> str:
    """The library's reason without the names of its classes."""
    return _CLASS.sub(lambda m: m[1].lower(), _TOKEN.sub(r"\1", reason))


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
