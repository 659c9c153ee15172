"""Errors of the command line, and how every error is shown: place, reason, remedy, no traceback."""

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from flowmesh_cli.exits import ExitCode
from flowmesh_core.errors import FlowMeshError, SpecError

P = ParamSpec("P")
R = TypeVar("R")

DEBUG_VARIABLE = "FMESH_DEBUG"


class CliError(FlowMeshError):
    """Ends the command with an exit code."""

    def __init__(self, message: str, code: ExitCode, *, where: str = "", remedy: str = "") -> None:
        """Takes the reason, the exit code, the place and the remedy."""
        super().__init__(message, where=where, remedy=remedy)
        self.code = code


class FilesError(CliError):
    """Files that cannot be accepted: every problem as ``file:line:column: field: message``."""

    def __init__(self, lines: list[str]) -> None:
        """Takes one line a problem."""
        count = len(lines)
        super().__init__("\n".join(lines), ExitCode.USAGE)
        self.lines = lines
        self.summary = f"{count} problem{'s' if count > 1 else ''}; nothing was started"


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Makes a command end with a message and an exit code instead of a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except FlowMeshError as e:
            _raise_if_debugging()
            show(e)
            raise typer.Exit(code_of(e)) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has gone; the interpreter must not try to flush it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from None
        except Exception as e:
            if type(e).__module__.partition(".")[0] in ("typer", "click"):
                raise
            _raise_if_debugging()
            typer.echo(f"error: {type(e).__name__}: {e}", err=True)
            typer.echo(f"remedy: run it again with {DEBUG_VARIABLE}=1 and report it", err=True)
            raise typer.Exit(ExitCode.INTERNAL) from None

    return run


def code_of(error: FlowMeshError) -> ExitCode:
    """The exit code of an error."""
    if isinstance(error, CliError):
        return error.code
    return ExitCode.USAGE if isinstance(error, SpecError) else ExitCode.FAILED


def show(error: FlowMeshError) -> None:
    """Writes an error to standard error."""
    if isinstance(error, FilesError):
        for line in error.lines:
            typer.echo(line, err=True)
        typer.echo(error.summary, err=True)
        return
    place = f"{error.where}: " if error.where else ""
    typer.echo(f"error: {place}{error.message}", err=True)
    if error.remedy:
        typer.echo(f"remedy: {error.remedy}", err=True)


def _raise_if_debugging() -> None:
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        raise  # noqa: PLE0704 - called inside an except block, to show the traceback
