"""Adds to typer's usage errors what helps: the value that is wrong, the option that was meant."""

from typing import Any

_OPTIONS = dict.fromkeys(
    ("-p", "--param", "--params", "--parameter", "--parameters", "--arg", "--args"), "--set"
)
"""What other tools call an option, and what it is called here."""


def explain_usage(error: Any) -> None:
    """Changes the message of a usage error of typer to name the value or a similar option."""
    _name_value(error)
    _suggest_option(error)


def _name_value(error: Any) -> None:
    # Typer takes the message of pydantic's error, which it was raised from, without the value.
    problems = getattr(error.__cause__, "errors", None)
    expected = error.message.partition("Input should be ")[2]
    if problems and expected:
        value = problems()[0]["input"]
        error.message = f"{value} is not {expected.partition(', unable to')[0]}"


def _suggest_option(error: Any) -> None:
    name = getattr(error, "option_name", None)
    found = list(getattr(error, "possibilities", None) or ())
    option = _OPTIONS.get(name or "")
    if option and error.ctx and any(option in p.opts for p in error.ctx.command.params):
        found = [option]
    if found:
        error.message += f"; did you mean {' or '.join(found)}?"
        error.possibilities = None
