"""Counts and logs what the gateway leaves out of workers' messages."""

import logging
from collections import Counter

from flowmesh_control.workers.message_intake import DroppedItems, DropReason
from flowmesh_core.protocol.checks import MessageProblem

log = logging.getLogger("flowmesh.gateway")


class DropCounters:
    """Everything that was left out in this epoch.

    Attributes:
        counts: by reason; every reason is there.
    """

    def __init__(self) -> None:
        """Starts at zero."""
        self.counts = Counter[str](dict.fromkeys(DropReason, 0))

    def count(self, worker: str, pool: str, dropped: DroppedItems) -> None:
        """Counts what was left out of a message, and says so in the log."""
        for reason, number in dropped.counts.items():
            self.counts[reason] += number
        for one in dropped.first:
            log.warning(
                "dropped from worker %r of pool %r (%s): %s", worker, pool, one.reason, one.problem
            )
        rest = len(dropped) - len(dropped.first)
        if rest:
            log.warning("dropped from worker %r of pool %r: %d more items", worker, pool, rest)

    def whole(self, worker: str, pool: str, reason: DropReason, problem: MessageProblem) -> None:
        """Counts a message of which nothing can be used."""
        dropped = DroppedItems()
        dropped.add(reason, problem)
        self.count(worker, pool, dropped)
