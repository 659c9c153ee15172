"""Finds the services that the user names: of one namespace, or of all where none is chosen.

A laptop chooses none, as for runs; on a cluster the context's namespace is chosen.
"""

from flowmesh_api.v1.services import ServiceList, ServiceStatus
from flowmesh_cli.connection.chosen_namespace import chosen_namespace, several_namespaces
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest


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
        raise several_namespaces(f"have a service {name!r}", found, "services")
    raise CliError(
        f"there is no service {name!r} in any namespace{nearest(name, [s.name for s in known])}",
        ExitCode.NOT_FOUND,
        where="services",
        remedy="`fmesh services list` lists them",
    )
