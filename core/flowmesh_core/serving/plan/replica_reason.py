"""Why a replica is where it is; ``fmesh services why`` shows it."""

from enum import StrEnum

import msgspec


class ReplicaVerdict(StrEnum):
    """What a plan decided about a replica."""

    STAYS = "stays"
    PLACED = "placed"
    MOVED = "moved"
    MISSING = "missing"


class ReplicaReason(msgspec.Struct, frozen=True):
    """A decision about one replica.

    Attributes:
        service: ``namespace/name``; ``component`` of that service.
        text: why.
        worker: that holds it; empty where it is missing, and then so is ``replica_id``.
    """

    service: str
    component: str
    verdict: ReplicaVerdict
    text: str
    worker: str = ""
    replica_id: str = ""
