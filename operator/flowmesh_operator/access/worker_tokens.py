"""Verifies a worker's token with the API server and finds the pool that it belongs to.

Every pool has a ServiceAccount. Its pods have a token of it with the audience ``flowmesh``, which
the API server itself does not accept, and which names the pod. Answers are cached for seconds; the
token of a deleted pod fails its review.
"""

import hashlib
import hmac
from typing import Any, Protocol

from flowmesh_control.auth.worker_tokens import ANY_POOL, WorkerIdentity
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.ttl_cache import TtlCache
from flowmesh_operator.access.users import TokenReviews
from flowmesh_operator.kube.kinds import PODS
from flowmesh_operator.kube.labels import TOKEN_AUDIENCE, pool_of_object
from flowmesh_operator.kube.timestamps import unix_time

YES_S = 30.0
NO_S = 2.0
TOKENS_MAX = 4_096
POD_NAME = "authentication.kubernetes.io/pod-name"
_ACCOUNT = "system:serviceaccount:"


class ReviewUnavailableError(FlowMeshError):
    """The API server did not review a token; the worker must try again."""


class PodReader(TokenReviews, Protocol):
    """Reviews tokens and reads pods; ``flowmesh_operator.kube.client.KubeClient`` implements it."""

    async def get(
        self, group: str, version: str, plural: str, namespace: str, name: str
    ) -> dict[str, Any]:
        """Reads an object.

        Raises:
            FlowMeshError: the API server refused, or did not answer.
        """
        ...


class ReviewedWorkerTokens:
    """Implements ``WorkerTokenVerifier``: a token's ServiceAccount names its pool."""

    def __init__(self, reviews: PodReader, *, namespace: str, fixed: str = "") -> None:
        """Starts with an empty cache.

        Args:
            reviews: with few tries and a short timeout, because a worker waits for the answer.
            namespace: the operator's own, where the pools' ServiceAccounts are.
            fixed: a token that lets a worker join any pool; none if empty.
        """
        self._reviews = reviews
        self._namespace = namespace
        self._fixed = fixed.encode(errors="surrogateescape")
        self._identities: TtlCache[bytes, WorkerIdentity | None] = TtlCache(
            lambda found: NO_S if found is None else YES_S, most=TOKENS_MAX
        )

    async def identity_of(self, token: str) -> WorkerIdentity | None:
        """See ``WorkerTokenVerifier.identity_of``.

        Raises:
            ReviewUnavailableError: the API server does not answer.
        """
        given = token.encode(errors="surrogateescape")
        if self._fixed and hmac.compare_digest(self._fixed, given):
            return WorkerIdentity(ANY_POOL)
        if not given or not token.isascii():  # not a ServiceAccount's token
            return None
        # The key is a hash: a core dump should not contain tokens of past requests.
        key = hashlib.sha256(given).digest()
        return await self._identities.get(key, lambda: self._review(token))

    async def _review(self, token: str) -> WorkerIdentity | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
        }
        try:
            review = await self._reviews.create(
                "authentication.k8s.io", "v1", "tokenreviews", "", body
            )
        except FlowMeshError as e:
            raise ReviewUnavailableError(
                f"the API server did not review the worker's token: {e.message}",
                where="tokenreviews",
                remedy="the worker tries again by itself; if it persists, grant the operator the "
                "right to create tokenreviews",
            ) from e
        status = review.get("status") or {}
        pool, pod = self._pool(status), _pod(status)
        if pool is None or not pod:
            return None if pool is None else WorkerIdentity(pool, declared=True)
        return WorkerIdentity(pool, pod, await self._created_s(pod), declared=True)

    async def _created_s(self, pod: str) -> float:
        """Returns when a pod was created: its worker cannot be older."""
        try:
            found = await self._reviews.get(*PODS, self._namespace, pod)
        except FlowMeshError as e:
            raise ReviewUnavailableError(
                f"the API server did not show the worker's pod: {e.message}",
                where=f"pods/{pod}",
                remedy="the worker tries again by itself; if it persists, grant the operator the "
                "right to get pods in its namespace",
            ) from e
        return unix_time(found["metadata"]["creationTimestamp"])

    def _pool(self, status: dict[str, Any]) -> str | None:
        # An API server without support for audiences returns none: it has not checked ours.
        checked = TOKEN_AUDIENCE in (status.get("audiences") or [])
        account = str((status.get("user") or {}).get("username", ""))
        if not status.get("authenticated") or not checked or not account.startswith(_ACCOUNT):
            return None
        namespace, _, name = account.removeprefix(_ACCOUNT).partition(":")
        return pool_of_object(name) if namespace == self._namespace else None


def _pod(status: dict[str, Any]) -> str:
    """Returns the pod that a reviewed token was made for; empty where it names none."""
    extra = (status.get("user") or {}).get("extra") or {}
    return str(next(iter(extra.get(POD_NAME) or ()), ""))
