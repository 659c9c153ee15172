"""Predicts the seconds of a fetch from the store to a worker, by a prior corrected by reports.

The prior is the rate that a fetch's connections can reach. How much slower or faster a network is
gets learned for each pool, because the workers of a pool are alike and in one place.
"""

from math import exp, isfinite, log

import msgspec

from flowmesh_core.costmodel.devices import (
    CONNECTION_BYTES_PER_S,
    FETCH_CONNECTIONS,
    FETCH_PIECE_BYTES,
)

LEARNED_FROM_BYTES = 64 << 20
"""Smaller fetches say little about the network: they have less than one piece for each connection,
and spend as much time waiting for responses as for bytes."""
SLOWDOWN_MIN = 1 / 32
"""22 GB/s, as much as the fastest network of a machine carries."""
SLOWDOWN_MAX = 512.0
"""1.4 MB/s: on slower networks, the weights of models take hours in any case."""
PACE_MIN = 0.1
"""Weight of a new observation after the first ten: other users of a network come and go."""
POOLS_MAX = 1024
"""The most pools that are remembered; the one observed longest ago is forgotten first."""


class LearnedNetwork(msgspec.Struct, frozen=True, array_like=True):
    """What was learned about a pool's network.

    Attributes:
        slowdown_log: running mean of the logarithm of ``observed_slowdown``.
        count: number of fetches that it was learned from.
    """

    slowdown_log: float
    count: int


class FetchTimes:
    """Predicts the seconds of fetches and learns from them; changed in place.

    Attributes:
        by_pool: pool → what was learned, the pool observed longest ago first.
    """

    def __init__(self) -> None:
        self.by_pool: dict[str, LearnedNetwork] = {}

    def slowdown(self, pool: str) -> float:
        """Returns how many times as long as in the prior several connections take.

        It is 1 for a pool without observations.
        """
        learned = self.by_pool.get(pool)
        return exp(learned.slowdown_log) if learned is not None else 1.0

    def seconds(self, far_bytes: int, pool: str) -> float:
        """Returns the seconds of a fetch by a worker of a pool."""
        first, rest = _parts(far_bytes)
        slowdown = self.slowdown(pool)
        if slowdown < 1.0:
            return (first + rest) * slowdown / CONNECTION_BYTES_PER_S
        # A slower network does not slow down a single connection until it carries less than that.
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
    """Returns the slowdown that a fetch shows, within ``SLOWDOWN_MIN`` and ``SLOWDOWN_MAX``.

    This is the inverse of ``FetchTimes.seconds``.

    Args:
        fetched_bytes: size of the fetch, more than ``FETCH_PIECE_BYTES``.
        fetch_s: seconds that it took, more than 0.
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
    """Returns the bytes of the first piece, and each connection's bytes of the rest."""
    first = float(min(far_bytes, FETCH_PIECE_BYTES))
    return first, (far_bytes - first) / FETCH_CONNECTIONS
