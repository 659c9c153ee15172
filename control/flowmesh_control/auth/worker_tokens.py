"""Verifies the tokens that workers join with; each is for one pool or for all.

Used by the worker gateway. The operator has an implementation that asks the API server.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

ANY_POOL = "*"


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What a valid token says of the worker that has it.

    Attributes:
        pool: the worker's pool, ``*`` for any.
        pod: the pod that the token was made for, whose name the worker must have; empty where the
            token names none.
        started_s: when that pod was created, in Unix time; None where there is none.
        declared: whether the pool is an object that the control plane must know.
    """

    pool: str
    pod: str = ""
    started_s: float | None = None
    declared: bool = False


class WorkerTokenVerifier(Protocol):
    """Verifies a worker's token."""

    async def identity_of(self, token: str) -> WorkerIdentity | None:
        """Returns what the token says of its worker; None where the token is not valid.

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

    async def identity_of(self, token: str) -> WorkerIdentity | None:
        """As :meth:`WorkerTokenVerifier.identity_of`; compares every token, for constant time."""
        given = _encoded(token)
        found = [p for p, t in self._pools.items() if hmac.compare_digest(t, given)]
        return WorkerIdentity(found[0]) if found else None


def _encoded(token: str) -> bytes:
    """Encodes a token; one from a header may have any bytes."""
    return token.encode(errors="surrogateescape")
