"""``when``: CEL conditions over ``params``, ``matrix`` and ``steps['x'].port.field``.

The compiler asks what a condition reads (each step it reads is an edge); the machine evaluates it
once those steps have ended. A condition that reads a field of a skipped step is false, so that
skipping goes on; ``steps['x'] == null`` asks for it.

Numbers compare by value, whatever their type, as on the API server.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError, base_functions

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.graph.substitution import Substitution, UnknownNameError
from flowmesh_core.graph.values import matrix_text, value_text

ROOTS = ("params", "matrix", "steps")
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_SPECIAL_FUNCTIONS = frozenset({"has", "dyn"})
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)


class ConditionError(ValueError):
    """A condition that is no CEL; the message says where."""


@dataclass(frozen=True, slots=True)
class StepRead:
    """A step that a condition reads: ``steps['x'].port.field``; port and field may be empty."""

    step: str
    port: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a condition reads.

    Attributes:
        steps: steps, in order of appearance.
        names: ``(root, name)`` of params and matrix values.
        unknown: identifiers that are neither roots nor bound by a macro.
        functions: functions that are called.
        dynamic: whether ``steps`` is used other than by a fixed name.
    """

    steps: tuple[StepRead, ...]
    names: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    functions: tuple[str, ...]
    dynamic: bool


def fill_matrix(text: str, params: Mapping[str, Any], matrix: Mapping[str, Any]) -> str:
    """The condition with ``${…}`` filled in: as text inside quotes, as a literal elsewhere.

    Raises:
        ConditionError: it names nothing.
    """
    if "${" not in text:
        return text
    names = Substitution(params, matrix)

    def replaced(match: re.Match[str]) -> str:
        try:
            value = names.look_up(match[1])
        except UnknownNameError as e:
            raise ConditionError(str(e)) from e
        before = text[: match.start()]
        inside = before.count("'") % 2 or before.count('"') % 2
        return matrix_text(value) if inside else _literal(value)

    return _REFERENCE.sub(replaced, text)


def _literal(value: Any) -> str:
    return repr(value) if isinstance(value, str) else value_text(value)


@lru_cache(maxsize=4096)
def reads(text: str) -> Reads:
    """What a condition reads.

    Raises:
        ConditionError: it is no CEL.
    """
    tree = _parse(text)
    bound = set(_bound(tree))
    steps: list[StepRead] = []
    names: list[tuple[str, str]] = []
    idents: list[str] = []
    _collect(tree, steps, names, idents)
    functions = [str(n.children[0]) for n in tree.find_data("ident_arg")]
    methods = [str(n.children[1]) for n in tree.find_data("member_dot_arg")]
    return Reads(
        steps=tuple(dict.fromkeys(steps)),
        names=tuple(dict.fromkeys(names)),
        unknown=tuple(i for i in dict.fromkeys(idents) if i not in bound and i not in ROOTS),
        functions=tuple(dict.fromkeys([*functions, *methods])),
        dynamic="steps" in idents,
    )


def known_functions() -> set[str]:
    """Functions, methods and macros that a condition may call."""
    return {f for f in base_functions if f.isidentifier()} | _MACROS | _SPECIAL_FUNCTIONS


def evaluate(
    text: str,
    *,
    params: Mapping[str, Any],
    matrix: Mapping[str, Any],
    steps: Mapping[str, Mapping[str, Mapping[str, Any]] | None],
) -> bool:
    """Whether a step runs.

    Args:
        text: ``StepPlan.when``.
        params: ``Plan.params``.
        matrix: ``StepPlan.matrix``.
        steps: for every path of ``StepPlan.when_steps``: its ports' fields (the values of metrics;
            ``{"count": rows}`` for a data set), or None where it was skipped.

    Raises:
        AttemptError: the condition cannot be evaluated on these values (kind ``bad-input``).
    """
    try:
        value = _program(text).evaluate(
            {
                "params": json_to_cel(dict(params)),
                "matrix": json_to_cel(dict(matrix)),
                "steps": json_to_cel(dict(steps)),
            }
        )
    except (CELEvalError, ValueError, TypeError) as e:
        if any(s is None for s in steps.values()):
            return False
        raise _failed(f"the condition {text!r} failed: {e.args[0] if e.args else e}") from e
    if not isinstance(value, celtypes.BoolType):
        raise _failed(f"the condition {text!r} gave {value!r}, not true or false")
    return bool(value)


def _failed(message: str) -> AttemptError:
    remedy = "compare the value, as in steps['score'].metrics.accuracy > 0.5; has(...) asks first"
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))


@cache
def _environment() -> Any:
    return celpy.Environment()


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    try:
        return _environment().compile(text)
    except celpy.CELParseError as e:
        at = f" at character {e.column}" if getattr(e, "column", None) else ""
        raise ConditionError(f"{text!r} is no CEL condition{at}") from e


@lru_cache(maxsize=4096)
def _program(text: str) -> Any:
    return _environment().program(_parse(text), functions=_FUNCTIONS)


def _compared(name: str) -> Callable[[Any, Any], Any]:
    standard = base_functions[name]

    def compare(a: Any, b: Any) -> Any:
        if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and type(a) is not type(b):
            a, b = celtypes.DoubleType(float(a)), celtypes.DoubleType(float(b))
        return standard(a, b)

    return compare


def _equal(a: Any, b: Any) -> Any:
    if isinstance(a, CELEvalError | Exception):
        return a
    if isinstance(b, CELEvalError | Exception):
        return b
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return celtypes.BoolType(float(a) == float(b) if type(a) is not type(b) else a == b)
    if a is None or b is None or type(a) is not type(b):
        return celtypes.BoolType(a is None and b is None)
    return base_functions["_==_"](a, b)


def _unequal(a: Any, b: Any) -> Any:
    equal = _equal(a, b)
    return celtypes.BoolType(not equal) if isinstance(equal, celtypes.BoolType) else equal


_FUNCTIONS: dict[str, Any] = {
    **{name: _compared(name) for name in ("_<_", "_<=_", "_>_", "_>=_")},
    "_==_": _equal,
    "_!=_": _unequal,
}


def _collect(
    node: Any, steps: list[StepRead], names: list[tuple[str, str]], idents: list[str]
) -> None:
    """Gathers what is read, outermost member first."""
    chain = _chain(node)
    if chain is not None and chain[0] in {"params", "matrix"} and len(chain) > 1:
        names.append((chain[0], chain[1]))
        return
    if chain is not None and chain[0] == "steps" and len(chain) > 1:
        steps.append(StepRead(*chain[1:4]))
        return
    if getattr(node, "data", "") == "ident":
        idents.append(str(node.children[0]))
        return
    for child in getattr(node, "children", ()):
        _collect(child, steps, names, idents)


def _chain(node: Any) -> list[str] | None:
    """``['steps', 'x', 'rows', 'count']`` for ``steps['x'].rows.count``; None for anything else."""
    kind = getattr(node, "data", "")
    if kind in {"member", "primary"} and len(node.children) == 1:
        return _chain(node.children[0])
    if kind == "ident":
        return [str(node.children[0])]
    if kind == "member_dot":
        inner = _chain(node.children[0])
        return None if inner is None else [*inner, str(node.children[1])]
    if kind == "member_index":
        inner, key = _chain(node.children[0]), _string(node.children[1])
        return None if inner is None or key is None else [*inner, key]
    return None


def _string(node: Any) -> str | None:
    while len(getattr(node, "children", ())) == 1:
        node = node.children[0]
    text = str(node)
    if getattr(node, "children", None) or not text or text[0] not in "'\"":
        return None
    return str(ast.literal_eval(text))


def _bound(tree: Any) -> Iterator[str]:
    for call in tree.find_data("member_dot_arg"):
        if str(call.children[1]) in _MACROS and len(call.children) > 2:  # noqa: PLR2004
            first = next(iter(call.children[2].children), None)
            name = _chain_of_expr(first)
            if name is not None:
                yield name


def _chain_of_expr(node: Any) -> str | None:
    while len(getattr(node, "children", ())) == 1 and getattr(node, "data", "") != "ident":
        node = node.children[0]
    return str(node.children[0]) if getattr(node, "data", "") == "ident" else None
