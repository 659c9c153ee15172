"""Finds the namespace of the artifact that the user names, where none is chosen."""

from flowmesh_api.v1.lineage import Direction, LineageWalk
from flowmesh_cli.connection.chosen_namespace import several_namespaces
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.sharing import REFERENCE_PREFIX


def find_artifact(http: ApiClient, given: str) -> tuple[str, str]:
    """Returns an artifact as the API takes it, and the namespace whose runs have it.

    Args:
        http: the client of a laptop's fabric.
        given: a digest, a reference, or RUN/OUTPUT.

    Raises:
        CliError: there is no such run or artifact, or several namespaces have one.
    """
    run, sign, name = given.rpartition("/")
    runs = all_runs(http)
    if not sign or given.startswith(REFERENCE_PREFIX):
        found = _namespaces(http, given)
    elif not (found := {one.namespace for one in runs if one.name == run}):
        uid = find_run(http, run)
        found = {one.namespace for one in runs if one.uid == uid}
        given = f"{uid}/{name}"
    if len(found) > 1:
        what = f"a run {run!r}" if run else repr(given)
        raise several_namespaces(f"have {what}", found, "target")
    return given, next(iter(found), "")


def _namespaces(http: ApiClient, given: str) -> set[str]:
    """Returns the namespaces whose runs made or used content; none for an unused upload."""
    try:
        walks = [
            http.get(f"/v1/lineage/{given}", LineageWalk, direction=direction.value, depth=1)
            for direction in Direction
        ]
    except CliError as error:
        if error.code is ExitCode.NOT_FOUND and given.startswith(REFERENCE_PREFIX):
            return set()
        raise
    return {made.namespace for walk in walks for made in walk.derivations}
