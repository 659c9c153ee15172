"""Finds the services that the user names: of one namespace, or of all where none is chosen.

A laptop chooses none, as for runs; on a cluster the context's namespace is chosen.
"""

from flowmesh_api.v1.services import ServiceList, ServiceStatus
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest


def chosen_namespace(http: ApiClient, namespace: str) -> str:
    """Returns the namespace that was given, or else the fabric's own; empty for all."""
    return namespace or http.namespace or http.default_namespace


def all_services(http: ApiClient, namespace: str = "") -> tuple[ServiceStatus, ...]:
    """Returns the services of the chosen namespace, or of all."""
    wanted = chosen_namespace(http, namespace)
    query = {"namespace": wanted} if wanted else {"all_namespaces": True}
    return http.get("/v1/services", ServiceList, **query).services


def find_service(http: ApiClient, namespace: str, name: str) -> str:
    """Returns the namespace of a service.

    Raises:
        CliError: no namespace was chosen, and none or several have a service of that name.
    """
    wanted = chosen_namespace(http, namespace)
    if wanted:
        return wanted
    known = all_services(http)
    found = [s.namespace for s in known if s.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise CliError(
            f"{len(found)} namespaces have a service {name!r}",
            ExitCode.USAGE,
            where="services",
            remedy=f"choose one: {' or '.join(f'-n {one}' for one in found)}",
        )
    raise CliError(
        f"there is no service {name!r} in any namespace{nearest(name, [s.name for s in known])}",
        ExitCode.NOT_FOUND,
        where="services",
        remedy="`fmesh services list` lists them",
    )
