"""The attempts and replicas of services that one connection of a worker may report on.

Those that were assigned on this connection need no proof. Any other, as after a lost connection or
a change of leader, needs a token that was issued to this worker process (``attempt_tokens``). The
gateway has one :class:`GivenAttempts` per connection.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flowmesh_core.protocol.attempt_grants import AttemptGrant
from flowmesh_core.protocol.attempt_tokens import REPLICA, AttemptTokens, TokenHolder
from flowmesh_core.protocol.messages import ServingReplica


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """What all connections of one epoch issue and verify tokens with.

    Attributes:
        tokens: the epoch's.
        clock: Unix time in seconds.
        steady_clock: seconds on a clock that does not jump.
    """

    tokens: AttemptTokens
    clock: Callable[[], float]
    steady_clock: Callable[[], float]


_Given = tuple[int, float, float]
"""An attempt of this connection: its generation, and when it was assigned by both clocks."""


class GivenAttempts:
    """The attempts that a worker process was given, as far as this connection knows."""

    __slots__ = ("_given", "_holder", "_issuer", "_replicas")

    def __init__(self, issuer: TokenIssuer, holder: TokenHolder) -> None:
        self._issuer = issuer
        self._holder = holder
        self._given: dict[str, _Given] = {}
        self._replicas: set[str] = set()

    def give(self, attempt_id: str, generation: int, read_scopes: tuple[str, ...]) -> str:
        """Returns the token of an attempt that is assigned now."""
        issuer = self._issuer
        now_s = issuer.clock()
        self._given[attempt_id] = generation, now_s, issuer.steady_clock()
        return issuer.tokens.issue(
            attempt_id,
            self._holder,
            generation=generation,
            read_scopes=read_scopes,
            issued_s=now_s,
        )

    def reading_token(self, read_scopes: tuple[str, ...]) -> str:
        """Returns a token of this worker process that only reads in some scopes."""
        issuer = self._issuer
        return issuer.tokens.issue_reading(
            self._holder, read_scopes=read_scopes, issued_s=issuer.clock()
        )

    def give_replica(self, replica: ServingReplica) -> ServingReplica:
        """Returns a replica that the worker process is given now, with its token."""
        issuer, opening = self._issuer, replica.opening
        self._replicas.add(replica.replica_id)
        token = issuer.tokens.issue_reading(
            self._holder,
            read_scopes=opening.read_scopes,
            issued_s=issuer.clock(),
            replica_id=replica.replica_id,
        )
        return msgspec.structs.replace(
            replica, opening=msgspec.structs.replace(opening, token=token)
        )

    def admits_replica(self, replica_id: str, token: str) -> bool:
        """Whether the worker process was given this replica of a service."""
        if replica_id in self._replicas:
            return True
        if self._grant(f"{REPLICA}{replica_id}", token) is None:
            return False
        self._replicas.add(replica_id)
        return True

    def admits(self, attempt_id: str, token: str) -> bool:
        """Whether the worker process was given this attempt."""
        if attempt_id in self._given:
            return True
        grant = self._grant(attempt_id, token) if attempt_id else None
        if grant is None or not grant.write_scope:  # of a replica: it has no end
            return False
        passed_s = self._issuer.clock() - grant.issued_s
        steady_s = self._issuer.steady_clock() - passed_s
        self._given[attempt_id] = grant.generation, grant.issued_s, steady_s
        return True

    def _grant(self, attempt_id: str, token: str) -> AttemptGrant | None:
        """Returns what a token says, if it is for this attempt and this worker process."""
        grant = self._issuer.tokens.verify(token, self._issuer.clock()) if token else None
        if grant is None or grant.attempt_id != attempt_id:
            return None
        holder = TokenHolder(grant.pool, grant.worker, grant.incarnation)
        return grant if holder == self._holder else None

    def generation(self, attempt_id: str) -> int:
        """Returns the generation that an admitted attempt was made for."""
        return self._given[attempt_id][0]

    def passed_s(self, attempt_id: str) -> float:
        """Returns the seconds since an admitted attempt was assigned.

        The larger of what both clocks say: the wall clock may step back, and the other one stands
        still while the computer sleeps.
        """
        _, issued_s, steady_s = self._given[attempt_id]
        return max(self._issuer.clock() - issued_s, self._issuer.steady_clock() - steady_s)

    def forget(self, attempt_id: str) -> None:
        """Forgets an attempt whose end is acknowledged; its token may still admit it."""
        self._given.pop(attempt_id, None)
