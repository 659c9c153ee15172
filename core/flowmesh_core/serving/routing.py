"""Which replica gets a call.

A router knows the loads that hubs last reported and the calls that it has sent itself. Other
routers' newest calls are unknown to it, so a replica bounds its own queue and refuses what it
cannot take; the router then tries the next-best one, once.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Candidate:
    """A replica as a router sees it.

    Attributes:
        replica_id: its name.
        paths: OpenAI's paths that it answers.
        calls_max: calls that run at once.
        reported: calls that run or wait there by the hub's last report.
        own_reported: of those, the router's own, when the report came.
        own: the router's own calls there now.
    """

    replica_id: str
    paths: Collection[str]
    calls_max: int
    reported: int = 0
    own_reported: int = 0
    own: int = 0

    @property
    def load(self) -> float:
        """Calls there per call that runs at once: those of others as reported, and our own."""
        others = max(0, self.reported - self.own_reported)
        return (others + self.own) / self.calls_max


def choose(
    candidates: Iterable[Candidate], path: str, tried: Collection[str] = ()
) -> Candidate | None:
    """Returns the least loaded replica that answers a path; None if there is none.

    Args:
        candidates: the service's replicas.
        path: what the call asks for.
        tried: replicas that have refused the call.
    """
    fitting = [c for c in candidates if path in c.paths and c.replica_id not in tried]
    return min(fitting, key=lambda c: (c.load, c.replica_id), default=None)
