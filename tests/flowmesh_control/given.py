"""Attempts as a gateway gives them to a worker, with real tokens."""

from collections.abc import Callable

from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens, TokenHolder
from flowmesh_core.sharing.key_ring import KeyRing

TOKENS = AttemptTokens(KeyRing.of(b"k" * 32).derive(CONTEXT))


def given_attempts(
    worker: str = "w1",
    pool: str = "local",
    incarnation: str = "i1",
    now: Callable[[], float] = lambda: 100.0,
) -> GivenAttempts:
    """A connection that was given nothing yet."""
    return GivenAttempts(TokenIssuer(TOKENS, now, now), TokenHolder(pool, worker, incarnation))
