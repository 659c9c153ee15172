"""Evaluates the syntax tree of a condition and counts every step of it.

Used by ``cel``. The library has no limit of its own: nested macros multiply, some of its errors
print whole values, and some of its functions are Python's (``'a' % 1`` formats, ``duration`` tries
a pattern in exponential time). Here each visited node counts one step, each function the weight of
its arguments, and functions for which neither is enough are replaced.
"""

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import re2
from celpy import celtypes
from celpy.evaluation import Activation, CELEvalError, Evaluator, base_functions

from flowmesh_core.graph.evaluation_budget import CHARS_PER_VALUE, MADE_MAX, VALUES_PER_STEP

PATTERN_STEPS = 50
"""Steps of a match, since the pattern must be compiled first."""
PATTERN_BYTES = 1 << 20
TIME_CHARS = 64
"""The longest text of a duration or a time."""

_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)
_SIZED = (str, bytes, list, dict)
_DURATION = re.compile(r"[-+]?(?:[0-9]*(?:\.[0-9]*)?[a-z])+\n?")
"""The library's pattern in a form that matches in one pass."""
_MADE: dict[type, Callable[[Any], Any]] = {
    str: celtypes.StringType,
    bytes: celtypes.BytesType,
    list: celtypes.ListType,
}
"""Python's ``+`` on subclasses gives their base class, which equals no value of CEL."""
_FREE = frozenset({"size", "type", "_[_]", "_?_:_", "_&&_", "_||_", "!_"})
"""Functions whose cost does not depend on the size of their arguments."""


class OverBudgetError(Exception):
    """An evaluation was stopped. Not a ``ValueError``, which the library would catch."""


class EvaluationMeter:
    """Counts the steps of one evaluation, up to a limit.

    Attributes:
        steps: so far.
    """

    def __init__(self, limit: int) -> None:
        self.steps = 0
        self._limit = limit
        self._values = 0
        self._weights: dict[int, tuple[Any, int]] = {}

    def count(self, steps: int = 1) -> None:
        """Counts steps.

        Raises:
            OverBudgetError: there are more than the limit.
        """
        self.steps = min(self.steps + steps, self._limit + 1)
        if self.steps > self._limit:
            raise OverBudgetError

    def value(self, value: Any) -> None:
        """Counts one value given to the condition; the values inside it count by themselves."""
        self._values += 1 + (len(value) // CHARS_PER_VALUE if isinstance(value, str) else 0)
        steps, self._values = divmod(self._values, VALUES_PER_STEP)
        self.count(steps)

    def read(self, *values: Any) -> None:
        """Counts the steps to read all of these values."""
        self.count(sum(map(self.weight, values)) // VALUES_PER_STEP)

    def weight(self, value: Any) -> int:
        """Returns how many values there are in it, at any depth; long text counts as several."""
        if isinstance(value, str | bytes):
            return 1 + len(value) // CHARS_PER_VALUE
        if not isinstance(value, list | dict):
            return 1
        known = self._weights.get(id(value))
        if known is None:  # the value is stored too, so that its id cannot be reused for another
            items = value if isinstance(value, list) else [*value.keys(), *value.values()]
            known = self._weights[id(value)] = (value, 1 + sum(map(self.weight, items)))
        return known[1]


class MeteredEvaluator(Evaluator):  # type: ignore[misc]  # celpy is untyped
    """The library's evaluator with a meter."""

    def __init__(self, ast: Any, activation: "ConditionNames") -> None:
        super().__init__(ast, activation)
        self._meter = activation.meter

    def sub_evaluator(self, ast: Any) -> "MeteredEvaluator":
        """Returns the evaluator of a macro's body, with the same meter."""
        return MeteredEvaluator(ast, self.activation)

    def visit_children(self, tree: Any) -> Any:
        """Counts a step, and visits."""
        self._meter.count()
        return super().visit_children(tree)

    def member_dot(self, tree: Any) -> Any:
        """Evaluates a field; a missing one is a short error, which does not print the value."""
        value = self.visit(tree.children[0])
        name = tree.children[1].value
        if isinstance(value, CELEvalError):
            return value
        if not isinstance(value, celtypes.MapType):
            return CELEvalError(f"a {_kind(value)} has no fields, such as {name!r}", tree=tree)
        if name not in value:
            return CELEvalError(f"no such member in mapping: {name!r}", KeyError, None, tree=tree)
        return value[name]

    def member_dot_arg(self, tree: Any) -> Any:
        """Evaluates a method or a macro; ``all`` and ``exists`` stop once the result is certain."""
        name = tree.children[1].value
        if name not in {"all", "exists"}:
            return super().member_dot_arg(tree)
        values = self.visit(tree.children[0])
        if isinstance(values, CELEvalError):
            return values
        holds = self.build_ss_macro_eval(tree)
        joined, found = (_and, True) if name == "all" else (_or, False)
        result: Any = celtypes.BoolType(found)
        for value in values:
            try:
                result = joined(result, holds(value))
            except TypeError as e:
                result = CELEvalError("no such overload", TypeError, e.args, tree=tree)
            if isinstance(result, celtypes.BoolType) and bool(result) is not found:
                break
        return result

    def member_object(self, tree: Any) -> Any:
        """Refuses messages, which conditions do not have."""
        return CELEvalError("a condition cannot make objects; {'name': value} is a map", tree=tree)


class ConditionNames(Activation):  # type: ignore[misc]  # celpy is untyped
    """The names that a condition may read, and its functions; each call counts.

    Args:
        meter: of the evaluation.
        functions: in place of the library's of the same name.
    """

    def __init__(self, meter: EvaluationMeter, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(functions={**functions, **_FUNCTIONS})
        self.meter = meter

    def clone(self) -> "ConditionNames":
        """Returns a copy for one iteration of a macro."""
        made = ConditionNames.__new__(ConditionNames)
        made.meter = self.meter
        made.identifiers = self.identifiers.clone()
        made.functions = self.functions
        made.package = self.package
        return made

    def resolve_function(self, name: str) -> Callable[..., Any]:
        """Returns the function of this name, counted.

        Raises:
            KeyError: there is none.
        """
        function: Callable[..., Any] = self.functions[name]
        meter = self.meter
        if name in _FREE:
            return function

        def counted(*args: Any) -> Any:
            meter.read(*args)
            if name == "matches":
                meter.count(PATTERN_STEPS)
            elif name in {"_in_", "contains"}:
                container, item = args if name == "contains" else reversed(args)
                one_by_one = _SIZED if name == "_in_" else (list, dict)
                size = len(container) if isinstance(container, one_by_one) else 0
                meter.count(size * meter.weight(item) // VALUES_PER_STEP)
            return function(*args)

        return counted

    def __repr__(self) -> str:
        """A few words, since the library prints it in errors."""
        return "the condition"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return type(value).__name__.removesuffix("Type").lower()


def _and(a: Any, b: Any) -> Any:
    """CEL's ``&&``: an error beside ``false`` does not matter."""
    if isinstance(a, celtypes.BoolType):
        return b if a else a
    if isinstance(b, celtypes.BoolType):
        return a if b else b
    raise TypeError("no such overload")


def _or(a: Any, b: Any) -> Any:
    """CEL's ``||``: an error beside ``true`` does not matter."""
    if isinstance(a, celtypes.BoolType):
        return a if a else b
    if isinstance(b, celtypes.BoolType):
        return b if b else a
    raise TypeError("no such overload")


def _added(a: Any, b: Any) -> Any:
    if isinstance(a, _SIZED) and isinstance(b, _SIZED) and len(a) + len(b) > MADE_MAX:
        raise OverBudgetError
    made = operator.add(a, b)
    return _MADE.get(type(made), _itself)(made)


def _itself(value: Any) -> Any:
    return value


def _arithmetic(name: str) -> Callable[[Any, Any], Any]:
    """An operator on numbers and times; CEL does not have Python's on strings and lists."""
    function = base_functions[name]

    def compute(a: Any, b: Any) -> Any:
        if isinstance(a, _SIZED) or isinstance(b, _SIZED):
            raise TypeError("no such overload")
        return function(a, b)

    compute.__name__ = name
    return compute


def _duration(value: Any, *more: Any) -> Any:
    wrong = isinstance(value, str) and not _DURATION.fullmatch(value[: TIME_CHARS + 1])
    if wrong or (isinstance(value, str) and len(value) > TIME_CHARS):
        raise ValueError("not a duration, such as 1h30m")
    return celtypes.DurationType(value, *more)


def _timestamp(value: Any, *more: Any) -> Any:
    if isinstance(value, str) and len(value) > TIME_CHARS:
        raise ValueError("not a time, such as 2026-01-31T12:00:00Z")
    return celtypes.TimestampType(value, *more)


@cache
def _pattern_options() -> Any:
    options = re2.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False
    return options


def _matches(text: Any, pattern: Any) -> Any:
    try:
        found = re2.compile(str(pattern), _pattern_options()).search(text)
    except re2.error as e:
        return CELEvalError("match error", type(e), e.args)
    return celtypes.BoolType(found is not None)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_&&_": _and,
    "_||_": _or,
    "_+_": _added,
    **{name: _arithmetic(name) for name in ("_-_", "_*_", "_/_", "_%_")},
    "duration": _duration,
    "timestamp": _timestamp,
    "matches": _matches,
}
