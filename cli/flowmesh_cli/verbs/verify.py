"""``fmesh verify``: reads outputs of a run again, down to what was brought in."""

import typer

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.verification import VerificationReport
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.run_lookup import find_run_and_output
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import count, size


def verify_outputs(named: str, *, place: Target, as_json: bool) -> None:
    """Verifies an output, or all of a run.

    Raises:
        CliError: the run has not ended.
        typer.Exit: a link does not hold.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid, output = find_run_and_output(http, named)
        if http.get(f"/v1/runs/{uid}", RunStatus).phase not in ENDED_PHASES:
            raise CliError(
                "it has not ended, so it has nothing to verify yet",
                ExitCode.USAGE,
                where=uid,
                remedy=f"wait for its end with `fmesh watch {uid}`",
            )
        path = f"/v1/runs/{uid}/verify"
        query = {"output": output}
        report = http.ask("GET", path, VerificationReport, query=query, takes_long=True)
    if as_json:
        terminal.answer(report)
    else:
        _show(terminal, report)
    if report.broken is not None:
        raise typer.Exit(ExitCode.FAILED)


def _show(terminal: Terminal, report: VerificationReport) -> None:
    outputs = ", ".join(report.outputs) or "no output"
    terminal.text(
        f"{report.uid}: {outputs}: {count(report.steps, 'step')}"
        f" ({count(report.imports, 'import')}), "
        f"{count(report.given, 'uploaded or referenced artifact')}"
    )
    terminal.text(
        f"read {count(report.records, 'sealed record')} and {count(report.blobs, 'blob')} "
        f"({size(report.bytes)})"
    )
    if report.broken is None:
        terminal.text("every digest, identity and seal holds")
        return
    broken = report.broken
    terminal.text(f"broken at {broken.kind} {broken.name}: {broken.reason}")
    terminal.note(
        "remedy: restore it from a copy of the store, or run the workflow again: what is missing "
        "or not valid is computed again"
    )
