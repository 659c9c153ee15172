"""Groups of actions of which each may have ended a host or a worker; see ``suspects``."""

import msgspec

from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.events import ActionKey


class SuspectCase(msgspec.Struct, eq=False):
    """One end of a host or a worker of which several actions are suspected."""

    found: bool = False


class SuspectGroup(msgspec.Struct, eq=False):
    """Suspects that run together, apart from all others.

    Attributes:
        info: their requirement, under a signature that only they have.
        actions: those that are in it.
        alone: it is for one action, which runs isolated.
    """

    case: SuspectCase
    info: SignatureInfo
    actions: dict[ActionKey, None] = {}
    alone: bool = False
