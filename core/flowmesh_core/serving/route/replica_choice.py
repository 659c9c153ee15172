"""Which replica gets a call.

A router knows the loads that hubs last reported and the calls that it has sent itself. Other
routers' newest calls are unknown to it, so a replica bounds its own queue and refuses what it
cannot take; the router then tries the next-best one, once.

Without a key the least loaded replica gets the call. With one, equal keys go to one replica while
it has room (``stages.keyed_choice``), so that its prefix cache is found again.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from flowmesh_core.stages.keyed_choice import choose_by_key, key_weight


@dataclass(slots=True)
class Candidate:
    """A replica as a router sees it.

    Attributes:
        replica_id: its name.
        paths: OpenAI's paths that it answers.
        calls_max: calls that run at once, at least 1.
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
    def calls(self) -> int:
        """Calls there: those of others as reported, and our own."""
        return max(0, self.reported - self.own_reported) + self.own

    @property
    def load(self) -> float:
        """Calls there per call that runs at once."""
        return self.calls / self.calls_max


def choose_replica(
    candidates: Iterable[Candidate],
    path: str,
    tried: Collection[str] = (),
    *,
    request: str = "",
    key: str = "",
) -> Candidate | None:
    """Returns the replica that gets a call; None if there is none.

    Args:
        candidates: the service's replicas.
        path: what the call asks for.
        tried: replicas that have refused the call.
        request: breaks ties among equally loaded replicas, evenly over many requests.
        key: that replicas are chosen by; empty for none.
    """
    fitting = [c for c in candidates if path in c.paths and c.replica_id not in tried]
    if key:
        return choose_by_key(fitting, key)
    if len(fitting) <= 1:
        return fitting[0] if fitting else None
    least = min(c.load for c in fitting)
    idlest = [c for c in fitting if c.load == least]
    if len(idlest) == 1:
        return idlest[0]
    if not request:
        return min(idlest, key=lambda c: c.replica_id)
    return min(idlest, key=lambda c: (key_weight(request, c.replica_id), c.replica_id))
