"""Verifies a worker's token with the API server and finds the pool that it belongs to.

Every pool has a ServiceAccount. Its pods have a token of it with the audience ``flowmesh``, which
the API server itself does not accept. Answers are cached for seconds; the token of a deleted pod
fails its review.
"""

import hashlib
import hmac
from typing import Any

from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.ttl_cache import TtlCache
from flowmesh_operator.access.users import TokenReviews
from flowmesh_operator.kube.labels import TOKEN_AUDIENCE, pool_of_object

YES_S = 30.0
NO_S = 2.0
TOKENS_MAX = 4_096
ANY_POOL = "*"
_ACCOUNT = "system:serviceaccount:"


class ReviewUnavailableError(FlowMeshError):
    """The API server did not review a token; the worker must try again."""


class ReviewedWorkerTokens:
    """Implements ``WorkerTokenVerifier``: a token's ServiceAccount names its pool."""

    def __init__(self, reviews: TokenReviews, *, namespace: str, fixed: str = "") -> None:
        """Starts with an empty cache.

        Args:
            reviews: with few tries and a short timeout, because a worker waits for the answer.
            namespace: the operator's own, where the pools' ServiceAccounts are.
            fixed: a token that lets a worker join any pool; none if empty.
        """
        self._reviews = reviews
        self._namespace = namespace
        self._fixed = fixed.encode(errors="surrogateescape")
        self._pools: TtlCache[bytes, str | None] = TtlCache(
            lambda pool: NO_S if pool is None else YES_S, most=TOKENS_MAX
        )

    async def pool_of(self, token: str) -> str | None:
        """See ``WorkerTokenVerifier.pool_of``.

        Raises:
            ReviewUnavailableError: the API server does not answer.
        """
        given = token.encode(errors="surrogateescape")
        if self._fixed and hmac.compare_digest(self._fixed, given):
            return ANY_POOL
        if not given or not token.isascii():  # not a ServiceAccount's token
            return None
        # The key is a hash: a core dump should not contain tokens of past requests.
        key = hashlib.sha256(given).digest()
        return await self._pools.get(key, lambda: self._review(token))

    async def _review(self, token: str) -> str | None:
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
        return self._pool(review.get("status") or {})

    def _pool(self, status: dict[str, Any]) -> str | None:
        # An API server without support for audiences returns none: it has not checked ours.
        checked = TOKEN_AUDIENCE in (status.get("audiences") or [])
        account = str((status.get("user") or {}).get("username", ""))
        if not status.get("authenticated") or not checked or not account.startswith(_ACCOUNT):
            return None
        namespace, _, name = account.removeprefix(_ACCOUNT).partition(":")
        return pool_of_object(name) if namespace == self._namespace else None
