"""Authenticates and authorizes users of the gateway with the API server's reviews.

TokenReview and SubjectAccessReview: the cluster's Roles apply to the gateway too, and there is no
other list of users. Answers are cached for seconds, so that a right that is revoked ends within
``YES_S``. Without an answer of the API server the request is refused.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

from flowmesh_control.auth.users import Resource, User
from flowmesh_control.errors import AuthorizationUnavailableError
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.ttl_cache import TtlCache

AUDIENCE = "flowmesh"
GROUP = "flowmesh.dev"
YES_S = 10.0
"""How long an authenticated user, or a granted right, is cached."""
NO_S = 2.0
"""How long a refusal is cached: a right that was just granted should take effect soon."""
USERS_MAX = 2_048
RIGHTS_MAX = 16_384

_Right = tuple[User, str, str, str]


class TokenReviews(Protocol):
    """Creates review objects; ``flowmesh_operator.kube.client.KubeClient`` implements it."""

    async def create(
        self, group: str, version: str, plural: str, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Creates an object; returns it with its status.

        Raises:
            FlowMeshError: the API server refused, or did not answer.
        """
        ...


class ReviewedUsers:
    """Implements ``flowmesh_control.auth.users.Users`` with the API server's reviews."""

    def __init__(self, reviews: TokenReviews, *, namespace: str) -> None:
        """Starts with empty caches.

        Args:
            reviews: with few tries and a short timeout, because a user waits for the answer.
            namespace: the operator's own, where the worker pools are.
        """
        self._reviews = reviews
        self._namespace = namespace
        self._users: TtlCache[bytes, User | None] = TtlCache(
            lambda user: NO_S if user is None else YES_S, most=USERS_MAX
        )
        self._rights: TtlCache[_Right, bool] = TtlCache(
            lambda may: YES_S if may else NO_S, most=RIGHTS_MAX
        )

    async def user_of(self, token: str) -> User | None:
        """See ``Users.user_of``; takes tokens for the API server or the audience ``flowmesh``."""
        if not token.isascii():
            return None
        # The key is a hash: a core dump should not contain tokens of past requests.
        key = hashlib.sha256(token.encode()).digest()
        return await self._users.get(key, lambda: self._review_token(token))

    async def may(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """See ``Users.may``; pools are those of the operator's own namespace."""
        where = self._namespace if resource == Resource.POOLS else namespace
        right = (user, verb, resource, where)
        return await self._rights.get(right, lambda: self._review_right(right))

    async def _review_token(self, token: str) -> User | None:
        for audiences in ([], [AUDIENCE]):
            spec = {"token": token, **({"audiences": audiences} if audiences else {})}
            status = await self._review("authentication.k8s.io", "TokenReview", spec)
            # An API server without support for audiences returns none: it has not checked ours.
            checked = set(audiences) <= set(status.get("audiences") or [])
            if status.get("authenticated") and checked:
                return _user(status.get("user") or {})
        return None

    async def _review_right(self, right: _Right) -> bool:
        user, verb, resource, namespace = right
        spec: dict[str, Any] = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
        }
        if resource.startswith("/"):
            spec["nonResourceAttributes"] = {"path": resource, "verb": verb}
        else:
            spec["resourceAttributes"] = {
                "group": GROUP, "resource": resource, "verb": verb, "namespace": namespace
            }  # fmt: skip
        status = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        return status.get("allowed") is True

    async def _review(self, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        plural = f"{kind.lower()}s"
        try:
            review = await self._reviews.create(group, "v1", plural, "", body)
        except FlowMeshError as e:
            raise AuthorizationUnavailableError(
                f"the API server did not answer who you are or what you may do: {e.message}",
                where=plural,
                remedy="try again; if it persists, check `kubectl get --raw /readyz` and the "
                "operator's right to create tokenreviews and subjectaccessreviews",
            ) from e
        status: dict[str, Any] = review.get("status") or {}
        return status


def _user(fields: Mapping[str, Any]) -> User:
    extra = fields.get("extra") or {}
    return User(
        name=str(fields.get("username", "")),
        uid=str(fields.get("uid", "")),
        groups=tuple(fields.get("groups") or ()),
        extra=tuple((name, tuple(extra[name])) for name in sorted(extra)),
    )
