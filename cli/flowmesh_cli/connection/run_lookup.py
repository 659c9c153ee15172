"""Finds the run that the user names: by uid, prefix of a uid, or name (the latest of that name)."""

from collections.abc import Sequence

from flowmesh_api.v1.runs import RunSummary
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.service_lookup import all_services
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest


def all_runs(http: ApiClient, namespace: str = "") -> list[RunSummary]:
    """Returns every run that the user may see, of one namespace or of all, the latest last."""
    found = http.get("/v1/runs", list[RunSummary], namespace=namespace)
    return sorted(found, key=lambda run: run.created_s)


def find_run_and_output(http: ApiClient, given: str) -> tuple[str, str]:
    """Returns the uid of a run, and the output that is named with it; empty for none.

    A namespace may come before the name of a run too, so the run is tried first.

    Raises:
        CliError: as :func:`find_run`.
    """
    try:
        return find_run(http, given), ""
    except CliError:
        run, sign, name = given.rpartition("/")
        if not sign:
            raise
        return find_run(http, run), name


def find_run(http: ApiClient, given: str) -> str:
    """Returns the uid of a run; names in the user's own namespace are preferred.

    Raises:
        CliError: no run matches, or several uids have this prefix.
    """
    runs = all_runs(http)
    ours = [r for r in runs if http.namespace in ("", r.namespace)]
    if not (given or ours):
        raise _no_runs(http)
    if not given:
        return next((r for r in reversed(ours) if not r.audit_of), ours[-1]).uid
    namespace, _, name = given.rpartition("/")
    exact = [r for r in runs if r.uid == given]
    called = [r for r in [*runs, *ours] if r.name == name and namespace in ("", r.namespace)]
    beginning = [r for r in runs if r.uid.startswith(given)]
    found = exact or called[-1:] or beginning
    if len(found) == 1:
        return found[0].uid
    if found:
        raise CliError(
            f"{given!r} is the beginning of {len(found)} uids",
            ExitCode.NOT_FOUND,
            remedy="; ".join(r.uid for r in found[:5]),
        )
    raise _unknown(http, given, runs)


def _no_runs(http: ApiClient) -> CliError:
    where = f" in namespace {http.namespace}" if http.namespace else ""
    return CliError(
        f"there are no runs{where}", ExitCode.NOT_FOUND, remedy="start one with `fmesh run`"
    )


def _unknown(http: ApiClient, given: str, runs: Sequence[RunSummary]) -> CliError:
    """Returns the error of a name that no run has; it may be that of a service."""
    if "/" not in given and _is_service(http, given):
        return CliError(
            f"no run {given!r}, but a service of that name",
            ExitCode.NOT_FOUND,
            remedy=f"`fmesh services show {given}` shows it",
        )
    if not runs:
        return _no_runs(http)
    known = dict.fromkeys([r.uid for r in runs] + [r.name for r in runs])
    return CliError(
        f"no run {given!r}{nearest(given, known)}",
        ExitCode.NOT_FOUND,
        remedy="`fmesh status --all` lists them",
    )


def _is_service(http: ApiClient, name: str) -> bool:
    """Returns whether a service has this name, as far as the user may list services."""
    try:
        return any(service.name == name for service in all_services(http))
    except CliError:
        return False
