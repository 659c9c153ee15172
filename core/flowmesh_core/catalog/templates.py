"""The one way templates over rows are read: by the compiler, to check them, and by engines.

A template sees each column of the row as a name, and all of them as ``row`` (for columns whose
names are no identifiers: ``{{ row["my column"] }}``). It reaches no Python objects, draws no random
numbers and reads no clock, so equal rows render equal text. An undefined name is an error, and so
is a null where a value is printed.
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, filters, meta, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROW = "row"
VALUE_MAX = 1_000_000
"""Characters, items or digits that a multiplication in a template may make."""
TURNS_MAX = 100_000
"""Turns of loops, and calls, in one rendering: it holds up all tenants of its engine host."""
_COUNTED = "_counted"
_WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_FORMATTING = frozenset({"format", "format_map"})
_DIGITS = re.compile(r"\d+")
_DIGITS_READ = 20
_RANDOM_GLOBALS = ("lipsum",)
_RANDOM_FILTERS = ("random",)


class NullPrintedError(TemplateRuntimeError):
    """A template was to print a null."""


class _Rendering(Context):
    """One rendering, which counts the turns of its loops."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.turns = [0]

    def derived(self, locals: dict[str, Any] | None = None) -> Context:  # noqa: A002 - jinja2's name
        """A block's view of the same rendering."""
        inner = super().derived(locals)
        if isinstance(inner, _Rendering):
            inner.turns = self.turns
        return inner

    def turn(self) -> None:
        """Counts one.

        Raises:
            SecurityError: there were too many.
        """
        self.turns[0] += 1
        if self.turns[0] > TURNS_MAX:
            raise SecurityError(f"more than {TURNS_MAX:,} turns of loops and calls for one row")


@pass_context
def _counted(rendering: _Rendering, values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        rendering.turn()
        yield value


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses values that would exhaust a worker's memory, and loops that would not end."""

    context_class = _Rendering
    intercepted_binops = frozenset({"*", "**", "%"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Reads a template and has the turns of its loops counted."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
        return tree

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in jinja2, so that a macro may have an argument of any name
        """Calls what a template calls; a recursive loop's inner turns count too."""
        __context.turn()
        if isinstance(__obj, LoopContext) and args:
            args = (_counted(__context, args[0]), *args[1:])
        name = getattr(__obj, "__name__", "")
        if name in _WIDENING or name in _FORMATTING:
            _bound_widths([*args, *kwargs.values()])
        text = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        if name in _FORMATTING and isinstance(text, str):
            _bound_widths(_numbers_in(text))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiplies, and formats, within bounds."""
        if operator == "%" and isinstance(left, str):
            given = right if isinstance(right, tuple) else (right,)
            _bound_widths([*_numbers_in(left), *(given if "*" in left else ())])
            return super().call_binop(context, operator, left, right)
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or not numbers:
            size = _size_of(operator, left, right)
            if size > VALUE_MAX:
                raise SecurityError(f"a value of size {size:g}, of at most {VALUE_MAX}")
        return super().call_binop(context, operator, left, right)


def _finalized(value: Any) -> Any:
    """What a template prints; a null would be printed as a word."""
    if value is None:
        raise NullPrintedError("prints a null")
    return value


def _bound_widths(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int) and value > VALUE_MAX:
            raise SecurityError(f"a width of {value}, of at most {VALUE_MAX}")


def _numbers_in(pattern: str) -> list[int]:
    return [int(digits[:_DIGITS_READ]) for digits in _DIGITS.findall(pattern)]


def _widened(text: Any, width: int = 80) -> str:
    """The filter ``center`` within bounds."""
    _bound_widths([width])
    return filters.do_center(text, width)


def _formatted(text: Any, *args: Any, **kwargs: Any) -> str:
    """The filter ``format`` within bounds."""
    _bound_widths([*_numbers_in(str(text)), *(args if "*" in str(text) else ())])
    return filters.do_format(text, *args, **kwargs)


def _size_of(operator: str, left: Any, right: Any) -> float:
    """Characters, items or digits of the product."""
    if operator == "**":
        digits = len(str(abs(left))) if isinstance(left, int) else 1
        return digits * abs(right) if isinstance(right, int) else 1
    lengths = (len(v) if hasattr(v, "__len__") else abs(v) for v in (left, right))
    return float(math.prod(lengths))


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The sandboxed environment; made once, never changed."""
    env = _Sandbox(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_finalized,
    )
    env.filters |= {_COUNTED: _counted, "center": _widened, "format": _formatted}
    for name in _RANDOM_GLOBALS:
        env.globals.pop(name, None)
    for name in _RANDOM_FILTERS:
        env.filters.pop(name, None)
    return env


def context(row: dict[str, Any]) -> dict[str, Any]:
    """What a template sees of a row; a column named ``row`` keeps its own value."""
    return {ROW: row, **row}


@lru_cache(maxsize=4096)
def undeclared(text: str) -> tuple[str, tuple[str, ...]]:
    """What is wrong with a template (empty where nothing is), and the columns that it names."""
    if "{" not in text:
        return "", ()
    env = environment()
    try:
        tree = env.parse(text)
        env.compile(tree)
        names = meta.find_undeclared_variables(tree)
    except TemplateSyntaxError as e:
        return f"not a template: {e.message} (line {e.lineno} of it)", ()
    except RecursionError:
        return "not a template: nested too deeply", ()
    return "", tuple(sorted(names - set(env.globals) - {ROW}))
