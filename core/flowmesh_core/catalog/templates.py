"""The one way templates over rows are read: by the compiler, to check them, and by engines.

A template sees each column of the row as a name, and all of them as ``row`` (for columns whose
names are no identifiers: ``{{ row["my column"] }}``). It reaches no Python objects, draws no random
numbers and reads no clock, so equal rows render equal text. An undefined name is an error.
"""

import math
from functools import cache, lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROW = "row"
VALUE_MAX = 1_000_000
"""Characters, items or digits that a multiplication in a template may make."""
_RANDOM_GLOBALS = ("lipsum",)
_RANDOM_FILTERS = ("random",)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses to make values that would exhaust a worker's memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiplies within bounds."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or not numbers:
            size = _size_of(operator, left, right)
            if size > VALUE_MAX:
                raise SecurityError(f"a value of size {size:g}, of at most {VALUE_MAX}")
        return super().call_binop(context, operator, left, right)


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
    env = _Sandbox(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
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
