"""The one way templates over rows are read: by the compiler, to check them, and by engines.

A template sees each column of the row as a name, and all of them as ``row`` (for columns whose
names are no identifiers: ``{{ row["my column"] }}``). It reaches no Python objects, draws no random
numbers and reads no clock, so equal rows render equal text. An undefined name is an error.
"""

from functools import cache
from typing import Any

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROW = "row"
_RANDOM_GLOBALS = ("lipsum",)
_RANDOM_FILTERS = ("random",)


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """The sandboxed environment; made once, never changed."""
    env = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    for name in _RANDOM_GLOBALS:
        env.globals.pop(name, None)
    for name in _RANDOM_FILTERS:
        env.filters.pop(name, None)
    return env


def context(row: dict[str, Any]) -> dict[str, Any]:
    """What a template sees of a row; a column named ``row`` keeps its own value."""
    return {ROW: row, **row}
