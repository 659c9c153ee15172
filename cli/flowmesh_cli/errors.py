"""Errors of the command line, and how errors are shown: place, reason and remedy, no traceback."""

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.printable import printable
from flowmesh_cli.unusable_paths import unusable_path
from flowmesh_core.errors import FlowMeshError, SpecError

P = ParamSpec("P")
R = TypeVar("R")

DEBUG_VARIABLE = "FMESH_DEBUG"


class CliError(FlowMeshError):
    """An error that ends the command with an exit code."""

    def __init__(self, message: str, code: ExitCode, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message, where=where, remedy=remedy)
        self.code = code


class DeclinedError(CliError):
    """The user declined a confirmation, or could not be asked; nothing was done."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message, ExitCode.INTERRUPTED, remedy=remedy)


class FilesError(CliError):
    """Refused files: one line per problem, as ``file:line:column: field: message``."""

    def __init__(self, lines: list[str], code: ExitCode = ExitCode.USAGE) -> None:
        count = len(lines)
        super().__init__("\n".join(lines), code, remedy="correct them, then run the command again")
        self.lines = lines
        self.summary = f"{count} problem{'s' if count > 1 else ''}; nothing was started"


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Wraps a command so that errors end it with a message and an exit code, not a traceback.

    A command that is called with ``json=True`` prints the error as its one JSON document.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (KeyboardInterrupt, typer.Abort):
            error: FlowMeshError = CliError("interrupted", ExitCode.INTERRUPTED)
        except BrokenPipeError:
            # The reader of the output has exited; the interpreter must not flush it once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from None
        except FlowMeshError as e:
            _raise_if_debugging()
            error = e
        except Exception as e:
            if type(e).__module__.partition(".")[0] in ("typer", "click"):
                raise
            _raise_if_debugging()
            error = _unexpected(e)
        raise typer.Exit(report(error, as_json=bool(kwargs.get("json"))))

    return run


def path_error(error: OSError, named: Path | None = None) -> CliError | None:
    """Returns the error of a path that this user cannot use; None for one that may be a defect.

    Args:
        error: what the operating system said.
        named: what the user named, where that is not the path of the error.
    """
    found = unusable_path(error, named)
    if found is None:
        return None
    message = f"cannot be read or written: {found.reason}"
    return CliError(message, ExitCode.USAGE, where=str(found.path), remedy=found.remedy)


def _unexpected(error: Exception) -> CliError:
    if isinstance(error, OSError) and (found := path_error(error)) is not None:
        return found
    remedy = f"run the command again with {DEBUG_VARIABLE}=1 and report the traceback"
    return CliError(f"{type(error).__name__}: {error}", ExitCode.INTERNAL, remedy=remedy)


def report(error: FlowMeshError, *, as_json: bool) -> ExitCode:
    """Writes an error as text, and as JSON if ``as_json``; returns the exit code."""
    code = code_of(error)
    if code != ExitCode.INTERRUPTED or isinstance(error, DeclinedError):
        show(error)
    if as_json:
        answer(error, code)
    return code


def code_of(error: FlowMeshError) -> ExitCode:
    """Returns the exit code of an error."""
    if isinstance(error, CliError):
        return error.code
    return ExitCode.USAGE if isinstance(error, SpecError) else ExitCode.FAILED


def show(error: FlowMeshError) -> None:
    """Writes an error to standard error."""
    if isinstance(error, FilesError):
        for line in error.lines:
            typer.echo(printable(line), err=True)
        typer.echo(error.summary, err=True)
        return
    place = f"{error.where}: " if error.where else ""
    typer.echo(printable(f"error: {place}{error.message}"), err=True)
    if error.remedy:
        typer.echo(printable(f"remedy: {error.remedy}"), err=True)


def answer(error: FlowMeshError, code: ExitCode) -> None:
    """Writes an error to standard output as one line of JSON, with every field."""
    problems: Sequence[str] = ()
    message = error.message
    if isinstance(error, FilesError):
        problems, message = error.lines, error.summary
    elif isinstance(error, SpecError):
        problems = [f"{p.path}: {p.message}" if p.path else p.message for p in error.problems]
    found = {
        "kind": code.name.lower().replace("_", "-"),
        "where": error.where,
        "message": message,
        "remedy": error.remedy,
        "problems": problems,
        "exit_code": int(code),
    }
    typer.echo(json.dumps({"error": found}, ensure_ascii=False))


def _raise_if_debugging() -> None:
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        raise  # noqa: PLE0704 - called inside an except block, to show the traceback
