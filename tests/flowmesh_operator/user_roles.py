"""Roles for the users of a test's API server."""

from tests.flowmesh_operator.api_server import ApiServer

OBJECTS = "flowmeshworkflows.flowmesh.dev"
LOOK = "get,list,watch"
EDIT = f"{LOOK},create,update,patch,delete"


def grant(server: ApiServer, user: str, namespace: str, verbs: str, resource: str = OBJECTS) -> str:
    """Gives a user a role in a namespace; returns the name of its binding."""
    name = f"{user}-{resource.partition('.')[0]}"
    server.kubectl(
        "create", "role", name, f"--verb={verbs}", f"--resource={resource}", "-n", namespace
    )
    server.kubectl(
        "create", "rolebinding", name, f"--role={name}", f"--user={user}", "-n", namespace
    )
    return name


def grant_everywhere(server: ApiServer, user: str, verbs: str, *what: str) -> None:
    """Gives a user a cluster role; ``what`` is ``--resource=…`` or ``--non-resource-url=…``."""
    name = f"{user}-{what[0].rpartition('=')[2].strip('/').partition('.')[0].replace('/', '-')}"
    server.kubectl("create", "clusterrole", name, f"--verb={verbs}", *what)
    server.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user}")


def revoke(server: ApiServer, binding: str, namespace: str) -> None:
    """Revokes a role."""
    server.kubectl("delete", "rolebinding", binding, "-n", namespace)
