"""Attempt tokens: the proof that a worker was given an attempt.

Attempt ids are public: an action id is a hash of the action, followed by a count. Each assignment
therefore carries a token that names the attempt and the worker process that may report on it. The
worker returns the token whole with the attempt's end, with its checkpoints, and when it connects
again; the gateway verifies it (ADR 30). The token has all that a verifier needs, so that the next
leader, and any service that shares the master keys, verifies it without state.
"""

import base64
import binascii
import hmac

import msgspec
from blake3 import blake3

from flowmesh_core.protocol.attempt_grants import (
    MAC_BYTES,
    VERSION,
    AttemptGrant,
    decode_grant,
)
from flowmesh_core.sharing.key_ring import DerivedKeys

CONTEXT = "flowmesh.dev 2 attempt tokens"
"""The purpose of the keys, for ``KeyRing.derive``."""
TOKEN_CHARS_MAX = 1024
REPLICA = "replica:"
"""Before a replica's id in the place of an attempt's; no scope has a colon."""
AGE_MAX_S = 8 * 86400
"""No attempt runs for longer."""
_CLOCKS_DIFFER_S = 60
"""How far in the future a token may have been issued: leaders' clocks differ a little."""


class TokenHolder(msgspec.Struct, frozen=True, gc=False):
    """The worker process that tokens are issued to."""

    pool: str
    worker: str
    incarnation: str


class AttemptTokens:
    """Issues and verifies attempt tokens."""

    __slots__ = ("_id", "_key", "_keys")

    def __init__(self, keys: DerivedKeys) -> None:
        """Uses these keys.

        Args:
            keys: of ``CONTEXT``; the newest issues, all verify.
        """
        self._keys = {bytes.fromhex(key_id): key for key_id, key in keys.by_id.items()}
        self._id = bytes.fromhex(keys.newest_id)
        self._key = keys.newest

    def issue(
        self,
        attempt_id: str,
        holder: TokenHolder,
        *,
        generation: int,
        read_scopes: tuple[str, ...],
        issued_s: float,
    ) -> str:
        """Returns the token of one attempt.

        Args:
            attempt_id: its scope is the one that the attempt may write to.
            holder: the worker that is given the attempt.
            generation: of the result that it would publish.
            read_scopes: where its inputs may lie.
            issued_s: now, in seconds since the epoch (UTC).
        """
        scope = attempt_id.partition("/")[0]
        return self._issue(attempt_id, holder, generation, scope, read_scopes, issued_s)

    def issue_reading(
        self,
        holder: TokenHolder,
        *,
        read_scopes: tuple[str, ...],
        issued_s: float,
        replica_id: str = "",
    ) -> str:
        """Returns a token without an attempt, which only reads; for a prewarm entry or a replica.

        Args:
            holder: the worker that is sent the entry.
            read_scopes: where the components of the entry may lie.
            issued_s: now, in seconds since the epoch (UTC).
            replica_id: of the service's replica that the worker is given; none of a prewarm entry.
        """
        name = f"{REPLICA}{replica_id}" if replica_id else ""
        return self._issue(name, holder, 0, "", read_scopes, issued_s)

    def _issue(
        self,
        attempt_id: str,
        holder: TokenHolder,
        generation: int,
        write_scope: str,
        read_scopes: tuple[str, ...],
        issued_s: float,
    ) -> str:
        payload = _encode(
            (
                VERSION,
                attempt_id,
                generation,
                holder.pool,
                holder.worker,
                holder.incarnation,
                int(issued_s),
                write_scope,
                read_scopes,
            )
        )
        mac = blake3(payload, key=self._key).digest(length=MAC_BYTES)
        return base64.urlsafe_b64encode(payload + self._id + mac).decode()

    def verify(self, token: str, now_s: float) -> AttemptGrant | None:
        """Returns what a token says; None where its MAC is wrong or it is too old."""
        if len(token) > TOKEN_CHARS_MAX:
            return None
        try:
            data = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        payload, mac = data[: -MAC_BYTES - 1], data[-MAC_BYTES:]
        key = self._keys.get(data[-MAC_BYTES - 1 : -MAC_BYTES])
        if key is None:
            return None
        if not hmac.compare_digest(blake3(payload, key=key).digest(length=MAC_BYTES), mac):
            return None
        grant = decode_grant(payload)
        if grant is None:
            return None
        in_time = -_CLOCKS_DIFFER_S <= now_s - grant.issued_s <= AGE_MAX_S
        return grant if in_time else None


_encode = msgspec.msgpack.Encoder().encode
