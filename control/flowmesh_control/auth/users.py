"""Who asks, and what they may do: the port, and the laptop's one user.

The API declares for each route what it needs, in the words of Kubernetes' RBAC: a verb on a kind
of object, in a namespace or in the whole cluster. A laptop has one user, who may do everything; a
cluster asks its API server.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""The labels of a namespace, for policies that select by label."""


class Verb(StrEnum):
    """What is done, as RBAC calls it."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Resource(StrEnum):
    """What it is done to: kinds of objects of the group ``flowmesh.dev``, or a path.

    A run is its workflow. Workers and the fabric's accounts are their pools'; the cache and its
    quarantine are the policies'.
    """

    WORKFLOWS = "flowmeshworkflows"
    POOLS = "flowmeshworkerpools"
    POLICIES = "flowmeshcachepolicies"
    METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class User:
    """Whoever presented a token.

    Attributes:
        name: as the API server knows them, such as ``system:serviceaccount:team-a:ci``.
        uid: tells two users of one name apart; may be empty.
        groups: that they are in.
        extra: what else whoever knows them said of them.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Users(Protocol):
    """Knows users and their rights."""

    async def who(self, token: str) -> User | None:
        """Whose token it is; None where it is nobody's.

        Raises:
            NotAskedError: nobody could be asked; never taken for a yes.
        """
        ...

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Whether a user may do that.

        Args:
            user: who.
            verb: of :class:`Verb`.
            resource: of :class:`Resource`.
            namespace: where; empty is everywhere, or for what is in no namespace.

        Raises:
            NotAskedError: nobody could be asked; never taken for a yes.
        """
        ...


class StaticUsers:
    """One token and one user, who may do everything: the laptop's way."""

    def __init__(self, token: str) -> None:
        """Takes the token."""
        self._token = token.encode(errors="surrogateescape")

    async def who(self, token: str) -> User | None:
        """As :meth:`Users.who`; compared in constant time."""
        given = token.encode(errors="surrogateescape")
        return User("owner") if hmac.compare_digest(given, self._token) else None

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Everything."""
        del user, verb, resource, namespace
        return True


def no_labels(namespace: str) -> Mapping[str, str]:
    """The laptop's namespaces are names and have no labels."""
    del namespace
    return {}
