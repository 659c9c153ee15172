"""Who may join as a worker: tokens of pools, compared in constant time."""

import hmac
from collections.abc import Mapping
from typing import Protocol


class WorkerTokenVerifier(Protocol):
    """Checks what a worker joins with."""

    async def pool_of(self, token: str) -> str | None:
        """The pool that the token is for, ``*`` for any; None where it is not valid.

        Raises:
            FlowMeshError: nobody can say now; the worker is told to try again.
        """
        ...


class StaticWorkerTokens:
    """A fixed token for each pool: the laptop's way."""

    def __init__(self, pools: Mapping[str, str]) -> None:
        """Takes pool → token; the pool ``*`` admits workers of any pool."""
        self._pools = {pool: _encoded(token) for pool, token in pools.items()}

    async def pool_of(self, token: str) -> str | None:
        """As :meth:`WorkerTokenVerifier.pool_of`; every token is compared, whichever matches."""
        given = _encoded(token)
        found = [p for p, t in self._pools.items() if hmac.compare_digest(t, given)]
        return found[0] if found else None


def _encoded(token: str) -> bytes:
    """The bytes of a token; those of a header may be any."""
    return token.encode(errors="surrogateescape")
