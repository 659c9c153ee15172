"""Which replica of a component gets a call.

A router knows the calls in flight at each replica from its last report, and what it has sent there
since. Without a key the least loaded replica gets the call. With one, equal keys go to one replica
while it has room, so that its prefix cache and its data are found again: the replica is chosen by
rendezvous hashing (Thaler and Ravishankar, 1998), with bounded loads (Mirrokni et al., 2018).
"""

import math
from collections.abc import Sequence

import msgspec
from blake3 import blake3

LOAD_BOUND = 1.25
"""A key's replica is passed over while its load is above so many times the mean."""


class ReplicaLoad(msgspec.Struct, frozen=True, gc=False):
    """A ready replica.

    Attributes:
        id: unique in the fabric.
        cap: how many calls it takes at once, at least 1.
        in_flight: calls there, by its last report.
        sent: calls that this router has sent since.
    """

    id: str
    cap: int
    in_flight: int = 0
    sent: int = 0

    @property
    def load(self) -> float:
        """Calls for each place."""
        return (self.in_flight + self.sent) / self.cap


def choose_replica(
    replicas: Sequence[ReplicaLoad], request: str, key: str = ""
) -> ReplicaLoad | None:
    """Chooses a replica for a call; None where there is none.

    Args:
        replicas: those that are ready, in any order.
        request: breaks ties among equally loaded replicas, evenly over many requests.
        key: of affinity; empty for none.
    """
    if not key:
        return min(replicas, key=lambda r: (r.load, -_weight(request, r.id)), default=None)
    calls = 1 + sum(r.in_flight + r.sent for r in replicas)
    places = sum(r.cap for r in replicas)
    ranked = sorted(replicas, key=lambda r: -_weight(key, r.id))
    for replica in ranked:
        bound = math.ceil(LOAD_BOUND * calls * replica.cap / places)
        if replica.in_flight + replica.sent < bound:
            return replica
    return None


def _weight(key: str, replica: str) -> int:
    digest = blake3(f"{len(key)}:{key}{replica}".encode()).digest(8)
    return int.from_bytes(digest, "big")
