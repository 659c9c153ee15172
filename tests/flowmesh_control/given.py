"""Attempts as a gateway gives them to a worker, with real tokens."""

from collections.abc import Callable

from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens, TokenHolder
from flowmesh_core.protocol.link_certificates import LINK_KEYS
from flowmesh_core.sharing.key_ring import KeyRing

RING = KeyRing.of(b"k" * 32)
TOKENS = AttemptTokens(RING.derive(CONTEXT))


def link_signer(now: Callable[[], float] = lambda: 100.0) -> LinkSigner:
    """Signs link certificates with the key of these tests."""
    return LinkSigner(RING.derive(LINK_KEYS), now)


def given_attempts(
    worker: str = "w1",
    pool: str = "local",
    incarnation: str = "i1",
    now: Callable[[], float] = lambda: 100.0,
) -> GivenAttempts:
    """A connection that was given nothing yet."""
    return GivenAttempts(TokenIssuer(TOKENS, now, now), TokenHolder(pool, worker, incarnation))
