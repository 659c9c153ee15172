"""Seconds that bytes take from the store to a worker: a prior, corrected by what pools report.

The prior is what the connections of a fetch reach. How much of that a worker's network carries is
learned by pool, since the workers of a pool are alike and in one place.
"""

from math import exp, isfinite, log

import msgspec

from flowmesh_core.costmodel.devices import (
    CONNECTION_BYTES_PER_S,
    FETCH_CONNECTIONS,
    FETCH_PIECE_BYTES,
)

LEARNED_FROM_BYTES = 64 << 20
"""Smaller fetches say little of the network: less than the first piece and one of each other
connection, they wait for answers as long as for bytes."""
SLOWDOWN_MIN = 1 / 32
"""22 GB/s, as much as a machine's fastest network carries."""
SLOWDOWN_MAX = 512.0
"""1.4 MB/s: below, weights of models come in hours in any case."""
PACE_MIN = 0.1
"""Weight of a new observation once there are ten: networks have neighbours, which change."""
POOLS_MAX = 1024
"""Pools remembered; the one observed longest ago is forgotten first."""


class LearnedNetwork(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a pool's network.

    Attributes:
        slowdown_log: running mean of the logarithm of ``FetchTimes.slowdown``.
        count: fetches behind it.
    """

    slowdown_log: float
    count: int


class FetchTimes:
    """Predicts and learns; changed in place.

    Attributes:
        by_pool: what was learned, in the order in which the pools were last observed.
    """

    def __init__(self) -> None:
        self.by_pool: dict[str, LearnedNetwork] = {}

    def slowdown(self, pool: str) -> float:
        """Returns how many times as long several connections take as by the prior.

        It is 1 for a pool that was not observed.
        """
        learned = self.by_pool.get(pool)
        return exp(learned.slowdown_log) if learned is not None else 1.0

    def seconds(self, far_bytes: int, pool: str) -> float:
        """Returns the seconds of a fetch by a worker of a pool."""
        first, rest = _parts(far_bytes)
        slowdown = self.slowdown(pool)
        if slowdown < 1.0:
            return (first + rest) * slowdown / CONNECTION_BYTES_PER_S
        # A slower network takes nothing from one connection until it carries less than that.
        first *= max(1.0, slowdown / FETCH_CONNECTIONS)
        return (first + rest * slowdown) / CONNECTION_BYTES_PER_S

    def observe(self, pool: str, fetched_bytes: int, fetch_s: float) -> None:
        """Learns from a fetch; does nothing for a small one."""
        if fetched_bytes < LEARNED_FROM_BYTES or not isfinite(fetch_s) or fetch_s <= 0.0:
            return
        seen = log(observed_slowdown(fetched_bytes, fetch_s))
        before = self.by_pool.pop(pool, LearnedNetwork(0.0, 0))
        count = before.count + 1
        mean = before.slowdown_log + (seen - before.slowdown_log) * max(1.0 / count, PACE_MIN)
        self.by_pool[pool] = LearnedNetwork(mean, count)
        if len(self.by_pool) > POOLS_MAX:
            del self.by_pool[next(iter(self.by_pool))]


def observed_slowdown(fetched_bytes: int, fetch_s: float) -> float:
    """Returns the slowdown that a fetch of this size and time shows, within its bounds.

    The inverse of ``FetchTimes.seconds``.

    Args:
        fetched_bytes: more than ``FETCH_PIECE_BYTES``.
        fetch_s: above 0.
    """
    first, rest = _parts(fetched_bytes)
    took = fetch_s * CONNECTION_BYTES_PER_S
    if took <= first + rest:
        found = took / (first + rest)
    elif took <= first + FETCH_CONNECTIONS * rest:
        found = (took - first) / rest
    else:
        found = took / (first / FETCH_CONNECTIONS + rest)
    return max(SLOWDOWN_MIN, min(SLOWDOWN_MAX, found))


def _parts(far_bytes: int) -> tuple[float, float]:
    """Returns the bytes of the first piece, and of the rest those that each connection reads."""
    first = float(min(far_bytes, FETCH_PIECE_BYTES))
    return first, (far_bytes - first) / FETCH_CONNECTIONS
