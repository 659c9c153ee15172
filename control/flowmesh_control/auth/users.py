"""Users and their rights: the port, and the implementation for a laptop.

The API declares for each route the right that it needs, in the terms of Kubernetes RBAC: a verb on
a kind of object, in a namespace or in the whole cluster. A laptop has one user with all rights; the
operator's implementation asks the API server.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, for policies that select by label."""


class Verb(StrEnum):
    """RBAC verbs.

    ``POST`` is one on paths, whose verbs are those of HTTP; ``CALL`` is ours: to send requests to
    services.
    """

    GET = "get"
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    POST = "post"
    CALL = "call"


class Resource(StrEnum):
    """RBAC resources: kinds of objects of the group ``flowmesh.dev``, or a path.

    Rights on runs are rights on workflows; on workers and the fabric's accounts, on pools; on the
    cache and its quarantine, on cache policies.
    """

    WORKFLOWS = "flowmeshworkflows"
    POOLS = "flowmeshworkerpools"
    POLICIES = "flowmeshcachepolicies"
    SERVICES = "flowmeshservices"
    METRICS = "/metrics"
    ROUTER = "/v1/router"


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token.

    Attributes:
        name: as in the API server, such as ``system:serviceaccount:team-a:ci``.
        uid: distinguishes two users of one name; may be empty.
        groups: the user's groups.
        extra: further attributes from the API server's token review.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Users(Protocol):
    """Authenticates users and decides their rights."""

    async def user_of(self, token: str) -> User | None:
        """Returns the user of a token; None where it is not valid.

        Raises:
            AuthorizationUnavailableError: it cannot be checked now; the request is refused.
        """
        ...

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Whether a user has a right.

        Args:
            user: from :meth:`user_of`.
            verb: of :class:`Verb`.
            resource: of :class:`Resource`.
            namespace: empty for all namespaces, and for resources without one.

        Raises:
            AuthorizationUnavailableError: it cannot be checked now; the request is refused.
        """
        ...


class StaticUsers:
    """One token and one user with all rights, for a laptop."""

    def __init__(self, token: str) -> None:
        self._token = token.encode(errors="surrogateescape")

    async def user_of(self, token: str) -> User | None:
        """As :meth:`Users.user_of`; compared in constant time."""
        given = token.encode(errors="surrogateescape")
        return User("owner") if hmac.compare_digest(given, self._token) else None

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Returns True: the one user has all rights."""
        del user, verb, resource, namespace
        return True


def no_labels(namespace: str) -> Mapping[str, str]:
    """Returns no labels: on a laptop namespaces are mere names."""
    del namespace
    return {}
