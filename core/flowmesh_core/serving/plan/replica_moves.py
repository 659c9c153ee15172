"""Moves of replicas from one worker to another: one at a time, and seldom.

Called by ``replica_placement``. A move is: a replica is loaded on another worker beside the one
that runs; once it is ready, the old one is off the plan, so that its worker lets its calls end and
unpins it. Until then the old one counts, so a service never has fewer replicas for a move.
"""

from collections.abc import Iterable, Mapping

import msgspec

MOVE_GAIN_SHARE = 0.1
"""The least gain of a move for capacity, as a share of what the service can serve.

Origin: more than measured times differ from one minute to the next, so that no move is undone by
the next measurement; two workers of one class of device never differ by it."""
MOVE_EVERY_S = 60.0
"""Seconds from the beginning of a service's move to that of its next.

Origin: about what a model of some GB takes from disk to a ready engine, so that a service pays for
one load at a time; it is also the time over which demand is measured, so the next move sees what
the last one has changed."""
FAILURES_COUNTED = 6
"""Each failed move doubles the time until the next, so many times at most: then it is 64 minutes.

Origin: a worker that cannot load the replica would be asked to each minute."""


class ReplicaMove(msgspec.Struct, frozen=True):
    """The newest move of a service's replicas.

    Attributes:
        began_s: when it began; for a service that has not moved, when it was planned first, so that
            neither a new service nor a new leader begins with a move.
        leaving: ids of the replicas that leave, one of each component of a group; empty where no
            move is under way.
        coming: ids of those that replace them, in the same order.
        reason: why.
        failures: moves that have failed, one after the other.
    """

    began_s: float
    leaving: tuple[str, ...] = ()
    coming: tuple[str, ...] = ()
    reason: str = ""
    failures: int = 0

    @property
    def next_s(self) -> float:
        """When the next one may begin."""
        return self.began_s + MOVE_EVERY_S * 2.0 ** min(self.failures, FAILURES_COUNTED)


class ReplicaMoves:
    """The moves of all services, while a plan is made."""

    def __init__(self, before: Mapping[str, ReplicaMove], now_s: float) -> None:
        """Begins with the moves of the last plan.

        Args:
            before: by service.
            now_s: the time.
        """
        self._moves = dict(before)
        self._now_s = now_s

    def of(self, service: str) -> ReplicaMove:
        """Returns the newest move of a service."""
        return self._moves.setdefault(service, ReplicaMove(self._now_s))

    def may_begin(self, service: str) -> bool:
        """Returns whether a service may move a replica now."""
        move = self.of(service)
        return not move.coming and self._now_s >= move.next_s

    def begin(
        self, service: str, leaving: Iterable[str], coming: Iterable[str], reason: str
    ) -> None:
        """Records that a move begins."""
        failures = self.of(service).failures
        move = ReplicaMove(self._now_s, tuple(leaving), tuple(coming), reason, failures)
        self._moves[service] = move

    def end(self, service: str, failures: int) -> None:
        """Records that the move of a service is over.

        Args:
            service: that has one.
            failures: moves that have failed, one after the other, with this one.
        """
        began_s = self.of(service).began_s
        self._moves[service] = ReplicaMove(began_s, failures=failures)

    def all(self, services: Iterable[str]) -> dict[str, ReplicaMove]:
        """Returns the moves of these services, for the next plan."""
        return {service: self.of(service) for service in services}
