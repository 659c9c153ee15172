"""Counts and logs what the gateway leaves out of workers' messages."""

import logging
from collections import Counter
from collections.abc import Sequence

from flowmesh_control.intake import Dropped, DropReason
from flowmesh_core.protocol.checks import MessageProblem

LOGGED = 10
"""Of the items that one message lost, so many are logged one by one."""

log = logging.getLogger("flowmesh.gateway")


class Drops:
    """Everything that was left out in this epoch.

    Attributes:
        counts: by reason; every reason is there.
    """

    def __init__(self) -> None:
        """Starts at zero."""
        self.counts = Counter[str](dict.fromkeys(DropReason, 0))

    def count(self, worker: str, pool: str, dropped: Sequence[Dropped]) -> None:
        """Counts what was left out of a message, and says so in the log."""
        for one in dropped:
            self.counts[one.reason] += 1
        for one in dropped[:LOGGED]:
            log.warning(
                "dropped from worker %r of pool %r (%s): %s", worker, pool, one.reason, one.problem
            )
        if len(dropped) > LOGGED:
            rest = len(dropped) - LOGGED
            log.warning("dropped from worker %r of pool %r: %d more items", worker, pool, rest)

    def whole(self, worker: str, pool: str, reason: DropReason, problem: MessageProblem) -> None:
        """Counts a message of which nothing can be used."""
        self.count(worker, pool, [Dropped(reason, problem)])
