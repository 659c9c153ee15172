"""Topological order, cycles and depth."""

import heapq
from collections.abc import Mapping, Sequence


def order(parents: Mapping[str, Sequence[str]]) -> tuple[list[str], int]:
    """Returns steps so that each comes after its parents, ties in the mapping's order.

    Args:
        parents: every step's parents; all of them are keys too.

    Returns:
        The steps that are on no cycle and after none, and the number of steps on the longest path.
    """
    index = {path: i for i, path in enumerate(parents)}
    names = list(parents)
    waiting = [len(ps) for ps in parents.values()]
    children: list[list[int]] = [[] for _ in names]
    for i, ps in enumerate(parents.values()):
        for p in ps:
            children[index[p]].append(i)
    depth = [1] * len(names)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    out: list[str] = []
    while ready:
        i = heapq.heappop(ready)
        out.append(names[i])
        for child in children[i]:
            depth[child] = max(depth[child], depth[i] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    return out, max(depth, default=0)


def find_cycle(parents: Mapping[str, Sequence[str]], ordered: Sequence[str]) -> list[str]:
    """Returns one cycle among the steps that could not be ordered, in the direction of the data.

    Args:
        parents: as for :func:`order`.
        ordered: as it returned them, fewer than ``parents``.

    Returns:
        The steps of the cycle, the first one repeated at the end.
    """
    done = set(ordered)
    remaining = [path for path in parents if path not in done]
    seen: dict[str, int] = {}
    walk: list[str] = []
    current = remaining[0]
    while current not in seen:
        seen[current] = len(walk)
        walk.append(current)
        current = next(p for p in parents[current] if p not in done)
    return [current, *reversed(walk[seen[current] :])]
