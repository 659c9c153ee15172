"""Counts and logs the items of workers' messages that the gateway drops."""

import logging
from collections import Counter

from flowmesh_control.workers.message_intake import DroppedItems, DropReason
from flowmesh_core.protocol.checks import MessageProblem

log = logging.getLogger("flowmesh.gateway")


class DropCounters:
    """Counters of the items dropped in this epoch.

    Attributes:
        counts: by reason; every reason has a counter.
    """

    def __init__(self) -> None:
        self.counts = Counter[str](dict.fromkeys(DropReason, 0))

    def count(self, worker: str, pool: str, dropped: DroppedItems) -> None:
        """Counts and logs what was dropped from a message."""
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
        """Counts and logs a message that was dropped as a whole."""
        dropped = DroppedItems()
        dropped.add(reason, problem)
        self.count(worker, pool, dropped)
