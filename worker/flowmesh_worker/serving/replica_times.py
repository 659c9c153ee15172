"""What the calls of a replica take, as its hub sees them begin and end."""

from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import OK, CallEnded, CallTimes
from flowmesh_core.serving.call_profile import CallProfile

_SUCCESS = 200


@dataclass(slots=True)
class ReplicaTimes:
    """The times of one replica's calls.

    Attributes:
        sums: of those that have ended since they were taken.
        measured: their times by how many run at once.
        busy_s: seconds that all calls took that have ended, from when they ran.
    """

    sums: CallTimes = field(default_factory=CallTimes)
    measured: CallProfile = field(default_factory=CallProfile)
    busy_s: float = 0.0

    def count(
        self, ended: CallEnded, running: int, arrived_s: float, began_s: float, now_s: float
    ) -> None:
        """Counts a call that has ended.

        Args:
            ended: its end.
            running: calls that ran as it began, this one too.
            arrived_s: when it came; ``began_s`` when it began to run.
            began_s: see there.
            now_s: the time.
        """
        self.busy_s += now_s - began_s
        self.sums.add(CallTimes(1, began_s - arrived_s, now_s - began_s, 1, running))
        if ended.outcome == OK and ended.status == _SUCCESS:
            self.measured.observe(began_s, now_s, running, ended.tokens_out)
