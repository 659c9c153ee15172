"""The namespace that a command concerns, where it concerns one; a laptop chooses none."""

from collections.abc import Iterable

from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode


def chosen_namespace(http: ApiClient, namespace: str = "") -> str:
    """Returns the namespace that was given, or else the fabric's own; empty for all."""
    return namespace or http.namespace or http.default_namespace


def several_namespaces(what: str, namespaces: Iterable[str], where: str) -> CliError:
    """Returns the error of a name that several namespaces have; its remedy names them."""
    found = sorted(namespaces)
    return CliError(
        f"{len(found)} namespaces {what}",
        ExitCode.USAGE,
        where=where,
        remedy=f"choose one: {' or '.join(f'-n {one}' for one in found)}",
    )
