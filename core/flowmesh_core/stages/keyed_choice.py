"""Which of some replicas gets the calls of one key.

Equal keys go to one replica while it has room, so that what it keeps for them is found again: the
cached beginning of a prompt, or the state of a component. The replica is chosen by rendezvous
hashing (Thaler and Ravishankar, 1998), so only the keys of a replica that goes move, and with
bounded loads (Mirrokni et al., 2018), so a popular key spills over before its replica is
overloaded. All routers choose alike: they share nothing but the names of the replicas.
"""

import math
from collections.abc import Iterable
from typing import Protocol, TypeVar

from blake3 import blake3

LOAD_BOUND = 1.25
"""A replica is passed over where a call would bring it above so many times the mean load."""


class LoadedReplica(Protocol):
    """A replica with its load."""

    @property
    def replica_id(self) -> str:
        """Its name."""
        ...

    @property
    def calls(self) -> int:
        """Calls there."""
        ...

    @property
    def calls_max(self) -> int:
        """Calls that run at once, at least 1."""
        ...


Replica = TypeVar("Replica", bound=LoadedReplica)


def choose_by_key(replicas: Iterable[Replica], key: str) -> Replica | None:
    """Returns the replica that gets a call; None if there is none.

    It is the first in the order of the key that has a place free (any, where all are full) and that
    the call does not bring above ``LOAD_BOUND`` times the mean. There is always one: were all those
    with a free place above the bound, so would the full ones be, and then the mean.

    Args:
        replicas: that can answer it.
        key: of the call.
    """
    fitting = list(replicas)
    if len(fitting) <= 1:
        return fitting[0] if fitting else None
    calls = 1 + sum(r.calls for r in fitting)
    places = sum(r.calls_max for r in fitting)
    free = [r for r in fitting if r.calls < r.calls_max] or fitting
    within = [r for r in free if r.calls < math.ceil(LOAD_BOUND * calls * r.calls_max / places)]
    return min(within, key=lambda r: (key_weight(key, r.replica_id), r.replica_id))


def key_weight(key: str, replica_id: str) -> int:
    """Returns a replica's place in the order of a key: lower ones come first."""
    digest = blake3(f"{len(key)}:{key}{replica_id}".encode()).digest(8)
    return int.from_bytes(digest, "big")
