"""Suggests a similar known name for a misspelt one, and our option for that of another tool."""

import difflib
from collections.abc import Iterable
from typing import Any

_OPTIONS = dict.fromkeys(
    ("-p", "--param", "--params", "--parameter", "--parameters", "--arg", "--args"), "--set"
)
"""What other tools call an option, and what it is called here."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ``; did you mean 'x'?`` where a known name is similar, else an empty text."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def suggest_option(error: Any) -> None:
    """Adds to a usage error of typer which options of the command an unknown one may mean."""
    name = getattr(error, "option_name", None)
    found = list(getattr(error, "possibilities", None) or ())
    option = _OPTIONS.get(name or "")
    if option and error.ctx and any(option in p.opts for p in error.ctx.command.params):
        found = [option]
    if found:
        error.message += f"; did you mean {' or '.join(found)}?"
        error.possibilities = None
