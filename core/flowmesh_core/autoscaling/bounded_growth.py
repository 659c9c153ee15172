"""Splits the workers that a namespace may still use among the pools that have its work.

A quota bounds a namespace's workers over all pools, but each pool is sized by itself. ``backlog``
calls this.
"""

from collections.abc import Mapping

from flowmesh_core.units import split_exactly

_MS_PER_S = 1000


def split_workers(
    free: int, ready_s: Mapping[str, float], room: Mapping[str, int]
) -> dict[str, int]:
    """Returns by how many workers each pool may grow for one namespace, ``free`` at most in total.

    Workers are divided in proportion to the seconds of the namespace's work. If a pool has no room
    for its part, the rest goes to the other pools. Remainders go to the pools with the most work.

    Args:
        free: how many more workers the namespace may use.
        ready_s: pool → seconds of the namespace's ready work, in the order of the pools.
        room: pool → the workers by which it can grow.
    """
    shares: dict[str, int] = {}
    open_s = dict(sorted(ready_s.items(), key=lambda item: -item[1]))
    while open_s:
        weights = [max(1, round(_MS_PER_S * seconds)) for seconds in open_s.values()]
        parts = dict(zip(open_s, split_exactly(free, weights), strict=True))
        full = [pool for pool, part in parts.items() if part > room[pool]]
        if not full:
            return shares | parts
        for pool in full:
            shares[pool] = room[pool]
            free -= room[pool]
            del open_s[pool]
    return shares
