"""``fmesh doctor``: checks what the first hour needs of this machine and installation."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.doctor.check import Check, CheckLevel
from flowmesh_cli.doctor.libraries import check_libraries
from flowmesh_cli.doctor.machine import check_machine, newest_change_s
from flowmesh_cli.doctor.state_folder import check_state_folder
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting


def examine(*, ports: Sequence[int], state_dir: Path | None, as_json: bool) -> None:
    """Shows a line a check, with its remedy; exits with ``REFUSED`` where a problem stops work."""
    terminal = Terminal(as_json=as_json)
    state = state_of(state_dir)
    checks = [
        *check_libraries(sys.version_info[:2]),
        *check_machine(ports or (0,), newest_change_s(state.path), time.time()),
        *check_state_folder(state),
    ]
    problems, warnings = (
        _count(checks, level) for level in (CheckLevel.PROBLEM, CheckLevel.WARNING)
    )
    if as_json:
        terminal.answer({"checks": checks, "problems": problems, "warnings": warnings})
    else:
        show(terminal, checks)
        counts = (formatting.count(problems, "problem"), formatting.count(warnings, "warning"))
        terminal.text(", ".join(counts))
    if problems:
        raise typer.Exit(ExitCode.REFUSED)


def show(terminal: Terminal, checks: Sequence[Check]) -> None:
    """Writes a line a check, and below it the remedy."""
    names = max(len(c.name) for c in checks)
    levels = max(len(c.level) for c in checks)
    for check in checks:
        terminal.text(f"{check.level:{levels}}  {check.name:{names}}  {check.message}")
        if check.remedy:
            terminal.text(f"{'':{levels}}  {'':{names}}  remedy: {check.remedy}")


def _count(checks: Sequence[Check], level: CheckLevel) -> int:
    return sum(check.level is level for check in checks)
