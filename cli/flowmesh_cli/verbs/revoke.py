"""``fmesh revoke``: deletes an artifact and all that was made from it."""

import io
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flowmesh_api.v1 import routes
from flowmesh_api.v1.revocation import RevocationAnswer, RevocationReport, RevokeBody
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.artifact_lookup import find_artifact
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import count, size


def revoke_artifact(
    artifact: str,
    *,
    namespace: str,
    all_namespaces: bool,
    dry_run: bool,
    report: Path | None,
    yes: bool,
    place: Target,
    as_json: bool,
) -> None:
    """Shows what a revocation deletes, asks, and revokes; with ``dry_run`` it only shows.

    Raises:
        DeclinedError: the user declined.
        CliError: it was not revoked, or the report cannot be written.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = chosen_namespace(http, namespace)
        if not wanted and not all_namespaces:
            artifact, wanted = find_artifact(http, artifact)
        where: dict[str, str | bool] = {"namespace": wanted, "all_namespaces": all_namespaces}
        if dry_run or not yes:
            answer = _ask(http, artifact, where, dry_run=True)
        if not dry_run:
            if not yes:
                _show(terminal, answer.report)
                question = "revoke it? What is deleted cannot be restored"
                terminal.confirm(question, declined="nothing was revoked")
            answer = _ask(http, artifact, where, dry_run=False)
    if report is not None:
        _write(report, answer.document)
    if as_json:
        terminal.answer(answer)
    else:
        _show(terminal, answer.report)


def _ask(
    http: ApiClient, artifact: str, where: Mapping[str, str | bool], *, dry_run: bool
) -> RevocationAnswer:
    # As a file, so that there is no timeout: it may take a minute.
    body = io.BytesIO(msgspec.json.encode(RevokeBody(artifact)))
    query = {**where, "dry_run": dry_run}
    return http.ask("POST", routes.REVOKE, RevocationAnswer, query=query, body=body)


def _write(path: Path, document: str) -> None:
    try:
        path.write_text(document)
    except OSError as e:
        raise CliError(f"cannot be written: {e.strerror}", ExitCode.USAGE, where=str(path)) from e


def _show(terminal: Terminal, report: RevocationReport) -> None:
    would = "would delete" if report.dry_run else "deleted"
    reach = f"namespace {report.namespace}" if report.namespace else "all namespaces"
    found = ", ".join(f"{number} {what}" for what, number in report.found.items() if number)
    deleted = report.deleted
    terminal.text(f"{report.kind} {report.identity[:12]} in {reach}: found {found or 'nothing'}")
    terminal.text(
        f"{would} {count(deleted.get('results', 0), 'result')} and "
        f"{count(deleted.get('blobs', 0), 'blob')} ({size(deleted.get('bytes', 0))})"
    )
    for one in report.remaining:
        terminal.text(f"{one.count} {one.what} stay: {one.reason}")
    if report.workers_asked:
        terminal.text(f"workers asked to delete it: {', '.join(report.workers_asked)}")
    if report.workers_not_connected:
        absent = ", ".join(report.workers_not_connected)
        terminal.text(f"not connected, asked when they connect: {absent}")
    for place in report.not_reached:
        terminal.text(f"not reached: {place}")
