"""Splits the workers that a namespace may still use among the pools that have its work.

A quota bounds a namespace's workers over all pools; each pool is sized by itself. Called by
``backlog``.
"""

from collections.abc import Mapping

from flowmesh_core.units import split_exactly

_MS_PER_S = 1000


def split_workers(
    free: int, ready_s: Mapping[str, float], room: Mapping[str, int]
) -> dict[str, int]:
    """Returns by how many workers each pool may grow for one namespace: ``free`` at most in all.

    The shares follow the seconds of its work. What a pool has no room for goes to the others; what
    cannot be divided goes to the pools with the most work.

    Args:
        free: workers that the namespace may use beside those that it uses.
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
