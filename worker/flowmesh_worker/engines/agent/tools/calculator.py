"""The tool ``calculator``: arithmetic in Python's syntax, evaluated without ``eval``."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of

_CHARS_MAX = 120  # xgrammar, which enforces schemas, fails on repetitions above 127
_BITS_MAX = 4096
_NODES_MAX = 200
_DIGITS_SHOWN = 12
_TOO_LARGE = "the value is too large"
_NO_ARITHMETIC = "this is no arithmetic expression"
Number = int | float
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
}
_CONSTANTS = {"pi": math.pi, "e": math.e}


class CalculatorTool:
    """The tool ``calculator``."""

    name = "calculator"
    description = (
        "Evaluates arithmetic: + - * / // % ** and brackets, abs, min, max, round, sqrt, floor,"
        " ceil, pi and e."
    )
    parameters = schema_of(
        {
            "expression": {
                "type": "string",
                "description": "such as (3 + 4) * 12",
                # Bounds a constrained completion: small models often do not close a string.
                "pattern": f"^[0-9a-z+*/%()., ^-]{{1,{_CHARS_MAX}}}$",
            }
        }
    )

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Returns the value as a decimal."""
        expression = arguments["expression"]
        if len(expression) > _CHARS_MAX:
            raise ToolError(f"the expression is longer than {_CHARS_MAX} characters")
        return evaluate(expression)


def evaluate(expression: str) -> str:
    """Returns the value of an expression as text.

    Floats have twelve significant digits: further ones may differ between machines.

    Raises:
        ToolError: it is not arithmetic, has no value, or is too large.
    """
    if "\0" in expression:  # a SyntaxError or a ValueError, depending on the release of Python
        raise ToolError(_NO_ARITHMETIC)
    try:
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
        if sum(1 for _ in ast.walk(tree)) > _NODES_MAX:
            raise ToolError("the expression is too long")
        value = _value(tree.body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ToolError(_NO_ARITHMETIC) from None
    except OverflowError:
        raise ToolError(_TOO_LARGE) from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ToolError(str(error)) from None
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ToolError("the value is not finite")
        if not value.is_integer() or abs(value) >= 10**_DIGITS_SHOWN:
            return f"{value:.{_DIGITS_SHOWN}g}"
    return str(int(value))


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            raise ToolError("numbers only")
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=inner) if type(op) in _UNARY:
            return _bounded(_UNARY[type(op)](_value(inner)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, args)))
    raise ToolError(f"{ast.unparse(node)[:80]!r} is not allowed: numbers and operators only")


def _power(base: Number, exponent: Number) -> Number:
    exact = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0
    if exact and base.bit_length() * exponent > _BITS_MAX:  # type: ignore[union-attr]  # exact
        raise ToolError(_TOO_LARGE)
    return _bounded(base**exponent)


def _bounded(value: Any) -> Number:
    if isinstance(value, complex):
        raise ToolError("the value is no real number")
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        raise ToolError(_TOO_LARGE)
    number: Number = value
    return number
