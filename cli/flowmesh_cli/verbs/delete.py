"""``fmesh delete``: deletes runs that have ended."""

import time
from collections.abc import Sequence

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import DeletedRun, RunStatus, RunSummary
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.cluster.gateway import ClusterGateway
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.formatting import count

_NAMED = 5


def delete_runs(
    named: Sequence[str], *, older_than: str, yes: bool, place: Target, as_json: bool
) -> None:
    """Deletes the runs that are named, or those that ended long ago.

    Raises:
        CliError: none or both is given, or a run has not ended; nothing was deleted then.
        DeclinedError: the user did not confirm.
    """
    if bool(named) == bool(older_than):
        raise CliError(
            "expected either runs or --older-than",
            ExitCode.USAGE,
            remedy="`fmesh delete RUN`, or `fmesh delete --older-than 30d`",
        )
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        runs = _named(http, named) if named else _old(http, _seconds(older_than))
        if runs and not (yes or as_json) and terminal.can_ask:
            terminal.confirm(_question(runs), declined="nothing was deleted")
        deleted = [run for run in runs if _delete(http, run, terminal, skips=bool(older_than))]
    if as_json:
        terminal.answer({"deleted": [DeletedRun(r.uid, r.name, r.namespace) for r in deleted]})
        return
    for run in deleted:
        terminal.text(f"{run.uid} deleted")
    if not runs:
        terminal.text(f"no run ended more than {older_than} ago")


def _named(http: ApiClient, named: Sequence[str]) -> list[RunSummary]:
    uids = dict.fromkeys(find_run(http, name) for name in named)
    known = {run.uid: run for run in all_runs(http)}
    runs = [known[uid] for uid in uids if uid in known]
    for run in runs:
        if run.phase not in ENDED_PHASES:
            raise CliError(
                f"run {run.uid} has not ended ({run.phase})",
                ExitCode.REFUSED,
                remedy=f"`fmesh cancel {run.uid}` ends it; then delete it",
            )
    return runs


def _old(http: ApiClient, age_s: float) -> list[RunSummary]:
    before_s = time.time() - age_s
    return [
        run
        for run in all_runs(http, http.namespace)
        if run.phase in ENDED_PHASES and run.ended_s < before_s
    ]


def _seconds(text: str) -> float:
    from flowmesh_core.spec.quantities import seconds  # noqa: PLC0415 - loads the models of specs

    try:
        return seconds(text)
    except ValueError as e:
        raise CliError(str(e), ExitCode.USAGE, where="--older-than") from e


def _question(runs: Sequence[RunSummary]) -> str:
    titles = ", ".join(f"{r.namespace}/{r.name} ({r.uid})" for r in runs[:_NAMED])
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return f"delete {count(len(runs), 'run')}, {titles}{more}? They cannot be restored"


def delete_run(http: ApiClient, run: RunSummary | RunStatus) -> None:
    """Deletes a run that has ended; raises ``CliError`` where it has not, or does not exist."""
    if isinstance(http, ClusterGateway):
        http.objects.delete(run.namespace, run.name, run.uid)
    http.ask("DELETE", f"/v1/runs/{run.uid}", DeletedRun)


def _delete(http: ApiClient, run: RunSummary, terminal: Terminal, *, skips: bool) -> bool:
    """Deletes a run; returns False, with a note, for one that must stay where it ``skips`` it."""
    try:
        delete_run(http, run)
    except CliError as e:
        if e.code == ExitCode.NOT_FOUND:  # another command has deleted it meanwhile
            return True
        if not skips or e.code != ExitCode.REFUSED:
            raise
        terminal.note(f"{e}")
        return False
    return True
