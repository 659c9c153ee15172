"""What the machine knows of the newest checkpoint of an action."""

import msgspec

from flowmesh_core.units import Digest


class LatestCheckpoint(msgspec.Struct, eq=False):
    """The newest checkpoint of an action: a tree, and how far the work was.

    Attributes:
        time_s: when it was reported.
        noted: whether it is in the ledgers of the subscribed runs.
        trust: of all workers whose work it has, the least.
    """

    digest: Digest
    done: float
    size_bytes: int
    time_s: float
    noted: bool = False
    trust: int = 0
