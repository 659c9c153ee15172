"""Which pool a worker's token is for, by the API server's word.

Every pool has a ServiceAccount, and its pods a token of it with the audience ``flowmesh``, so that
the token is of no use to the API server itself. Answers are kept for seconds; a pod that is gone
has a token that reviews refuse.
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
    """Whose token it is cannot be asked now; the worker is to try again."""


class ReviewedWorkerTokens:
    """Implements ``WorkerTokenVerifier``: a token's ServiceAccount names its pool."""

    def __init__(self, reviews: TokenReviews, *, namespace: str, fixed: str = "") -> None:
        """Takes the way to the API server.

        Args:
            reviews: of few tries and a short timeout: a worker waits for the answer.
            namespace: the operator's own, where the pools' ServiceAccounts are.
            fixed: a token that any worker may join with; none if empty.
        """
        self._reviews = reviews
        self._namespace = namespace
        self._fixed = fixed.encode(errors="surrogateescape")
        self._pools: TtlCache[bytes, str | None] = TtlCache(
            lambda pool: NO_S if pool is None else YES_S, most=TOKENS_MAX
        )

    async def pool_of(self, token: str) -> str | None:
        """As ``WorkerTokenVerifier.pool_of``.

        Raises:
            NotReviewedError: the API server does not answer.
        """
        given = token.encode(errors="surrogateescape")
        if self._fixed and hmac.compare_digest(self._fixed, given):
            return ANY_POOL
        if not given or not token.isascii():  # no token of a ServiceAccount
            return None
        # What is kept is no token: a core dump should not hold them longer than a request.
        key = hashlib.sha256(given).digest()
        return await self._pools.get(key, lambda: self._review(token))

    async def _review(self, token: str) -> str | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
        }
        try:
            made = await self._reviews.create(
                "authentication.k8s.io", "v1", "tokenreviews", "", body
            )
        except FlowMeshError as e:
            raise ReviewUnavailableError(
                f"the API server cannot be asked whose token it is: {e.message}",
                where="tokenreviews",
                remedy="none is needed if it is away for a moment; else grant the operator the "
                "right to create tokenreviews",
            ) from e
        return self._pool(made.get("status") or {})

    def _pool(self, status: dict[str, Any]) -> str | None:
        # An API server that knows no audiences answers without any: then it has not checked ours.
        checked = TOKEN_AUDIENCE in (status.get("audiences") or [])
        account = str((status.get("user") or {}).get("username", ""))
        if not status.get("authenticated") or not checked or not account.startswith(_ACCOUNT):
            return None
        namespace, _, name = account.removeprefix(_ACCOUNT).partition(":")
        return pool_of_object(name) if namespace == self._namespace else None
