"""Verifies the tokens that workers join with; each is for one pool or for all.

Used by the worker gateway. The operator has an implementation that reads Secrets.
"""

import hmac
from collections.abc import Mapping
from typing import Protocol


class WorkerTokenVerifier(Protocol):
    """Verifies a worker's token."""

    async def pool_of(self, token: str) -> str | None:
        """Returns the token's pool, ``*`` for any; None where the token is not valid.

        Raises:
            FlowMeshError: it cannot be verified now; the worker is asked to retry.
        """
        ...


class StaticWorkerTokens:
    """A fixed token for each pool, compared in constant time; for a laptop."""

    def __init__(self, pools: Mapping[str, str]) -> None:
        """Encodes the tokens.

        Args:
            pools: pool → token; the token of the pool ``*`` admits workers of any pool.
        """
        self._pools = {pool: _encoded(token) for pool, token in pools.items()}

    async def pool_of(self, token: str) -> str | None:
        """As :meth:`WorkerTokenVerifier.pool_of`; compares every token, for constant time."""
        given = _encoded(token)
        found = [p for p, t in self._pools.items() if hmac.compare_digest(t, given)]
        return found[0] if found else None


def _encoded(token: str) -> bytes:
    """Encodes a token; one from a header may have any bytes."""
    return token.encode(errors="surrogateescape")
