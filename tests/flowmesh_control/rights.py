"""Users with rights written in a table, for tests of the doors."""

from collections.abc import Mapping

from flowmesh_control.auth.users import User
from flowmesh_control.errors import AuthorizationUnavailableError

VIEW = frozenset({"get", "list"})
EDIT = VIEW | {"create", "update", "delete", "post"}


class TableOfUsers:
    """Token ``NAME-token`` is NAME's; rights by user and namespace, on workflows."""

    def __init__(self, rights: Mapping[str, Mapping[str, frozenset[str]]]) -> None:
        self.rights = {name: dict(namespaces) for name, namespaces in rights.items()}
        self.answers = True

    async def user_of(self, token: str) -> User | None:
        if not self.answers:
            raise AuthorizationUnavailableError("the API server does not answer")
        name = token.removesuffix("-token")
        return User(name) if name in self.rights and token == f"{name}-token" else None

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        if not self.answers:
            raise AuthorizationUnavailableError("the API server does not answer")
        rights = self.rights[user.name]
        where = namespace if resource == "flowmeshworkflows" else f"{namespace}/{resource}"
        return verb in rights.get(where, frozenset()) | rights.get("*", frozenset())
