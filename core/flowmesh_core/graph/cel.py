"""CEL for conditions: parsed once, with numbers that compare by value.

The library compares integers only with integers; the API server compares 1 with 1.0, and so do
conditions here. Values of different kinds are unequal instead of an error. Tenants write
conditions, so their form is limited before they are parsed, and their evaluation is counted.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError, base_functions

from flowmesh_core.graph.cel_evaluator import (
    ConditionNames,
    EvaluationMeter,
    MeteredEvaluator,
    OverBudgetError,
)
from flowmesh_core.graph.evaluation_budget import (
    MADE_MAX,
    NESTING_MAX,
    REMEDY,
    STEPS_MAX,
    EvaluationBudget,
    shown,
    too_many_steps,
)

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
LONGEST = 4096
"""Characters of a condition."""
SHORT = 200
"""Characters; the trees of longer conditions are large, and few of them are cached."""
TOO_DEEP = "the condition is nested too deeply; split it over several steps"
_REASON_CHARS = 300
_ESCAPES_MAX = 16
"""Escapes and carriage returns: each doubles the ways to read a string that does not end."""
_ESCAPED = frozenset("abfnrtv\"'\\")
_CLASS = re.compile(r"<class 'celpy\.celtypes\.(\w+?)(?:Type)?'>")
_TOKEN = re.compile(r"Token\('\w+', '(\w+)'\)")
_SPECIAL_FUNCTIONS = frozenset({"has", "dyn"})
_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)


class ConditionError(ValueError):
    """A condition that is not CEL, has an unknown name, or does not give a truth value."""


class OverBudgetConditionError(ConditionError):
    """A condition whose evaluation needs more than its budget, so that it cannot be decided.

    Attributes:
        remedy: what its author may do.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


def parse(text: str) -> Any:
    """Returns the syntax tree of a condition.

    Raises:
        ConditionError: it is not CEL, or too long.
    """
    if len(text) > LONGEST:
        raise ConditionError(too_long(len(text)))
    return _short_tree(text) if len(text) <= SHORT else _long_tree(text)


def too_long(size: int) -> str:
    """Returns the message for a condition that is too long."""
    return f"the condition has {size} characters, of at most {LONGEST}"


@lru_cache(maxsize=1024)
def _short_tree(text: str) -> Any:
    return _tree(text)


@lru_cache(maxsize=8)
def _long_tree(text: str) -> Any:
    return _tree(text)


def _tree(text: str) -> Any:
    unclosed = _unclosed(text)
    if unclosed is not None:
        raise ConditionError(
            f"{text!r} is not a CEL condition; the string at character {unclosed + 1} does not end"
        )
    try:
        return _environment().compile(text)
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
    except celpy.CELParseError as e:
        column = getattr(e, "column", None)
        at = f"; look at character {column}" if column else ""
        raise ConditionError(f"{text!r} is not a CEL condition{at}") from e


def _unclosed(text: str) -> int | None:
    """Where a string begins that does not end and has many escapes; None where none does.

    The library's lexer would try every way to read its escapes, which are exponentially many.
    """
    at = 0
    while at < len(text):
        if text.startswith("//", at):
            line_end = text.find("\n", at)
            at = len(text) if line_end < 0 else line_end
        elif text[at] in {"'", '"'}:
            end = _string_end(text, at)
            if end is None:
                ways = text.count("\\", at) + text.count("\r", at)
                return at if ways > _ESCAPES_MAX else None
            at = end
        else:
            at += 1
    return None


def _string_end(text: str, start: int) -> int | None:
    """Returns the index after the string that begins here; None where it does not end."""
    quote = text[start] * 3 if text.startswith(text[start] * 3, start) else text[start]
    at = start + len(quote)
    while at < len(text):
        if text.startswith(quote, at):
            return at + len(quote)
        if text[at] == "\n" and len(quote) == 1:
            return None
        at += 2 if text[at] == "\\" and text[at + 1 : at + 2] in _ESCAPED else 1
    return None


def check_size(text: str) -> None:
    """Refuses a condition that could not be evaluated within its budget.

    Raises:
        ConditionError: its macros are nested too deeply, or it has too many parts.
    """
    tree = parse(text)
    try:
        nested = _nesting(tree)
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
    if nested > NESTING_MAX:
        raise ConditionError(
            f"its macros ({', '.join(sorted(MACROS))}) are nested {nested} deep, of at most"
            f" {NESTING_MAX}; compare values that a step has computed"
        )
    parts = sum(1 for _ in tree.iter_subtrees())
    if parts > STEPS_MAX:
        raise ConditionError(
            f"the condition has {parts:,} parts, of at most {STEPS_MAX:,}; split it over several"
            " steps"
        )


def _nesting(node: Any) -> int:
    """Returns how deep macros are nested."""
    depths = [_nesting(child) for child in getattr(node, "children", ())]
    if getattr(node, "data", "") == "member_dot_arg" and str(node.children[1]) in MACROS:
        depths.append(1 + max(depths[2:], default=0))
    return max(depths, default=0)


def truth(text: str, names: Mapping[str, Any], budget: EvaluationBudget) -> bool:
    """Returns the value of a condition.

    Args:
        text: the condition.
        names: the values that it may read, JSON-like, by root name.
        budget: of the run; the steps of the evaluation are added.

    Raises:
        ConditionError: it cannot be evaluated on these values, or gives neither true nor false.
        OverBudgetConditionError: it, or all of the run's together, would take too long.
    """
    meter = EvaluationMeter(min(STEPS_MAX, budget.remaining))
    try:
        value = _evaluated(text, names, meter)
    except OverBudgetError as e:
        raise _over(text, meter, budget) from e
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
    except ConditionError:
        raise
    except Exception as e:  # the library lets through any error of Python for a wrong argument
        text_of_error = (
            str(e.args[0]) if isinstance(e, CELEvalError | TypeError) and e.args else str(e)
        )
        reason = _in_words(text_of_error or type(e).__name__)
        raise ConditionError(f"the condition {text!r} failed: {reason}") from e
    finally:
        budget.spent += meter.steps
    if isinstance(value, list | dict):
        raise ConditionError(f"the condition {text!r} gave a list or a map, not true or false")
    if not isinstance(value, celtypes.BoolType):
        given = str(value)[:_REASON_CHARS]
        raise ConditionError(f"the condition {text!r} gave {given!r}, not true or false")
    return bool(value)


def _evaluated(text: str, names: Mapping[str, Any], meter: EvaluationMeter) -> Any:
    values = {name: json_to_cel(_plain(value, meter)) for name, value in names.items()}
    activation = ConditionNames(meter, _FUNCTIONS)
    return MeteredEvaluator(parse(text), activation).evaluate(values)


def _over(text: str, meter: EvaluationMeter, budget: EvaluationBudget) -> OverBudgetConditionError:
    if meter.steps > min(STEPS_MAX, budget.remaining):
        message = too_many_steps(text, remaining=budget.remaining, total=budget.total)
    else:
        message = f"the condition {shown(text)!r} makes a string or list of more than {MADE_MAX:,}"
    return OverBudgetConditionError(message, REMEDY)


def _in_words(reason: str) -> str:
    """The library's reason without the names of its classes."""
    reason = reason[:_REASON_CHARS]
    return _CLASS.sub(lambda m: m[1].lower(), _TOKEN.sub(r"\1", reason))


def known_functions() -> set[str]:
    """Returns the functions, methods and macros that a condition may call."""
    return {f for f in base_functions if f.isidentifier()} | MACROS | _SPECIAL_FUNCTIONS


@cache
def _environment() -> Any:
    return celpy.Environment()


def _plain(value: Any, meter: EvaluationMeter) -> Any:
    """Returns a value in the library's form, counted."""
    if isinstance(value, Mapping):
        plain: Any = {k: _plain(v, meter) for k, v in value.items()}
    elif isinstance(value, list | tuple):
        plain = [_plain(v, meter) for v in value]
    else:
        plain = value
    meter.value(plain)
    return plain


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
